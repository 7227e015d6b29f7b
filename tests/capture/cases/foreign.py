"""Programs of others at the same cgroup go on working, whether they were attached before ours or after."""

import contextlib
import socket

from capture import clients
from capture.envoy import Envoy
from capture.pods import PEERS
from capture.tasks import PROXY
from capture.worlds import PORT
from testkit.commands import bpftool, run
from testkit.failure import check
from testkit.paths import program

# peers/foreign.bpf.c
FROM, LEVEL, NAME, ANSWER = 7777, 0x5151, 7, 42
KINDS = {"foreign4": "cgroup_inet4_connect", "foreign6": "cgroup_inet6_connect",
         "foreign_option": "cgroup_getsockopt"}


@contextlib.contextmanager
def loaded(testbed):
    """Pinned until the end of the block."""
    compiled = testbed.directory / "foreign.o"
    run(program("clang"), "-O2", "-g", "-target", "bpf", "-I/usr/include/x86_64-linux-gnu",
        "-I/usr/include/aarch64-linux-gnu", "-c", PEERS / "foreign.bpf.c", "-o", compiled)
    directory = testbed.bpffs.path / "foreign"
    run("bpftool", "prog", "loadall", compiled, directory)
    try:
        yield directory
    finally:
        for name in KINDS:
            (directory / name).unlink()
        directory.rmdir()


@contextlib.contextmanager
def attached(cgroup, directory):
    for name, kind in KINDS.items():
        run("bpftool", "cgroup", "attach", cgroup, kind, "pinned", directory / name, "multi")
    try:
        yield
    finally:
        for name, kind in KINDS.items():
            run("bpftool", "cgroup", "detach", cgroup, kind, "pinned", directory / name)


def order(cgroup):
    """Programs of connect4 in the order in which they are called."""
    return [one["name"] for one in bpftool("cgroup", "show", cgroup) if one["attach_type"] == "cgroup_inet4_connect"]


def option(host):
    """The answer of somebody else's option."""
    with socket.create_connection((host, PORT), clients.PATIENCE) as conn:
        return conn.getsockopt(LEVEL, NAME, 1)[0]


def try_all(world, pod):
    """The exchanged port, by Envoy and by Envoy's user; and the option."""
    host = world.outside.ip
    for family in (4, 6):
        met = pod.run(clients.visit, host[family], FROM)
        check(met["proxied"] and met["name"] == "outside", f"IPv{family}: {met}")
        met = pod.run(clients.visit, host[family], FROM, owner=PROXY)
        check(not met["proxied"] and met["name"] == "outside", f"IPv{family}, as the proxy: {met}")
    check(pod.run(option, host[4]) == ANSWER, "another program's option has no answer")
    met = pod.run(clients.visit, host[4], PORT)
    check(met["proxied"] and met["peer"] == [host[4], PORT], f"{met}")


def test_attached_after_ours(testbed):
    world = testbed.ours
    with loaded(testbed) as directory, attached(world.cgroup.path, directory):
        check(order(world.cgroup.path) == ["connect4", "foreign4"], f"{order(world.cgroup.path)}")
        try_all(world, world.client)


def test_attached_before_ours(testbed):
    """A pod with tables of its own, and with Envoy."""
    world = testbed.ours
    pins = testbed.mount_bpffs("bpf-foreign").pins
    try:
        pod = world.pod("foreign", 9)
        with loaded(testbed) as directory, attached(pod.cgroup.path, directory):
            world.capture(pod, cgroup=pod.cgroup.path, pins=pins)
            check(order(pod.cgroup.path) == ["foreign4", "connect4"], f"{order(pod.cgroup.path)}")
            envoy = Envoy(pod, PORT).start()
            try_all(world, pod)
            world.release(pod, pins=pins)
            check(order(pod.cgroup.path) == ["foreign4"], f"after removal: {order(pod.cgroup.path)}")
            met = pod.run(clients.visit, world.outside.ip[4], FROM)
            check(not met["proxied"], f"after removal: {met}")
            envoy.stop()
    finally:
        world.remove("foreign")
