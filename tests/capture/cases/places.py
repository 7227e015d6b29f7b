"""Namespaces and cgroups."""

import socket
import sys

from capture import loads, recorders
from capture.clients import outcome
from capture.sidestep import Sidestep
from capture.worlds import PORT
from testkit import wait
from testkit.commands import bpftool
from testkit.failure import check

HOST, OTHER = "10.96.0.77", "10.96.0.78"
SOURCE_PORT = 41300


def hold(host, own, stopped):
    """A connection that stays, from a port that is given."""
    with socket.socket() as sock:
        sock.bind((own, SOURCE_PORT))
        sock.connect((host, PORT))
        first = recorders.ask(sock)
        while not stopped():
            if recorders.again(sock) != first:
                return "it has changed"
        return first["original"], first["peer"]


def test_same_addresses_in_two_namespaces(testbed):
    """Pods of two networks: connections with the same addresses and ports at both ends, at the same time."""
    other = Sidestep(testbed, "other")
    try:
        other.build()
        with recorders.pod(testbed.ours) as one, recorders.pod(other) as two:
            one_task = one.start(hold, HOST, one.ip[4])
            two_task = two.start(hold, OTHER, two.ip[4])
            for pod in (one, two):
                found = pod.run(recorders.met, "10.96.0.79", PORT)
                check(found["original"] == ["10.96.0.79", PORT], f"{found}")
            told = [one_task.stop(), two_task.stop()]
        source = [one.ip[4], SOURCE_PORT]
        check(told == [([HOST, PORT], source), ([OTHER, PORT], source)], f"{told}")
    finally:
        other.stop()


def test_second_cgroup(testbed):
    """A pod in another cgroup is captured: programs move to where both are, and nothing of the first fails or goes
    around."""
    world = testbed.ours
    pins = testbed.mount_bpffs("bpf-cgroups").pins
    one, two = world.pod("one", 7), world.pod("two", 8)
    try:
        for pod in (one, two):
            recorders.start(pod)
        world.capture(one, cgroup=one.cgroup.path, pins=pins)
        task = one.start(keep_asking)
        world.capture(two, cgroup=two.cgroup.path, pins=pins)
        for pod in (one, two):
            found = pod.run(recorders.met, HOST, PORT)
            check(found["original"] == [HOST, PORT], f"{pod.name}: {found}")
        counts = task.stop()
        check(set(counts) == {"told"}, f"while programs moved: {counts}")
        for pod in (one, two):
            world.release(pod, pins=pins)
    finally:
        for pod in (one, two):
            world.remove(pod.name)


def keep_asking(stopped):
    """Whether the proxy is told what was dialled, each time."""
    counts = loads.Counter()
    while not stopped():
        try:
            found = recorders.met(HOST, PORT)
            counts["told" if found["original"] == [HOST, PORT] else f"{found}"] += 1
        except OSError as error:
            counts[str(error)] += 1
    return dict(counts)


def test_namespace_that_ends(testbed):
    """Nobody has released its pod: the next command does, and everything of it goes."""
    world = testbed.ours
    pod = world.pod("mortal", 10)
    inode = pod.namespace.path.stat().st_ino
    before = set(world.inbound())
    world.capture(pod)
    [cookie] = set(world.inbound()) - before
    check(world.inbound()[cookie]["netns_ino"] == inode, "its program is in another namespace")
    world.forget(pod.name)
    wait.until(lambda: world.inbound()[cookie]["netns_ino"] == 0, "the namespace to end", 60)
    check(int(cookie) in captured(world.pins), "its entry has gone by itself")
    world.capture(world.client)
    check(cookie not in world.inbound() and int(cookie) not in captured(world.pins), "something of it is left")


def captured(pins):
    """Namespaces in the table of pods, by their cookies."""
    entries = bpftool("map", "dump", "pinned", next(pins.glob("services/maps-*/pods")))
    return {int.from_bytes(bytes(int(byte, 16) for byte in one["key"]), sys.byteorder) for one in entries}


def test_process_outside_of_the_cgroup(testbed):
    """Of a captured namespace, but not of its pod's cgroup: not captured, as the documentation says."""
    world = testbed.ours
    host = world.outside.ip[4]
    found = world.client.start_outside(outcome, host, PORT).result()
    check(found == "direct", f"{found}")
