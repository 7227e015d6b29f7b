"""Between the SYN and the proxy's accept: what was dialled is kept as long as it is wanted, and no longer."""

import contextlib
import socket

from capture import clients, recorders
from capture.worlds import PORT
from testkit import wait
from testkit.commands import bpftool, run
from testkit.failure import check

HOST = "10.96.0.77"
# A proxy that accepts nothing has room for few.
STUCK = 8
ROOM = 4


def pending(pins):
    """How many are on their way."""
    return len(bpftool("map", "dump", "pinned", next(pins.glob("services/maps-*/pending"))))


def begin(host, count):
    socks = [socket.socket(clients.family_of(host)) for _ in range(count)]
    for sock in socks:
        sock.setblocking(False)
        sock.connect_ex((host, PORT))
    return socks


def dial_and_close(host, count, stopped):
    """Dials; ends when it is told to, which closes everything."""
    socks = begin(host, count)
    while not stopped():
        wait.time.sleep(wait.POLL_SECONDS)
    return len(socks)


def test_given_up(testbed):
    """Connections that are closed before the proxy had room for them leave nothing."""
    with recorders.pod(testbed.ours, "--deaf") as pod:
        for host in (HOST, "fd00:96::77"):
            wait.until(lambda: pending(testbed.ours.pins) == 0, "nothing to be on its way")
            task = pod.start(dial_and_close, host, STUCK)
            wait.until(lambda: pending(testbed.ours.pins) > 0, "connections to be on their way")
            task.stop()
            wait.until(lambda: pending(testbed.ours.pins) == 0, f"what was dialled by {host} to be forgotten")


def reuse(host):
    """A connection that the proxy has ended keeps its descriptor; another one has its port meanwhile; then it is closed."""
    with contextlib.ExitStack() as stack:
        dead = stack.enter_context(socket.socket())
        dead.settimeout(clients.PATIENCE)
        dead.connect((host, PORT))
        return recorders.ask(dead)["original"]


def test_nothing_is_left(testbed):
    """Of connections that were served."""
    with recorders.pod(testbed.ours) as pod:
        check(pod.run(reuse, HOST) == [HOST, PORT], "another destination was told")
        wait.until(lambda: pending(testbed.ours.pins) == 0, "nothing to be on its way")


def small_table(testbed, pins):
    """The table of what is on its way is there before the programs are, and small."""
    form = bpftool("map", "show", "pinned", next(testbed.ours.pins.glob("services/maps-*/pending")))
    path = next(testbed.ours.pins.glob("services/maps-*"))
    directory = pins / "services" / path.name
    directory.mkdir(parents=True)
    run("bpftool", "map", "create", directory / "pending", "type", "hash", "key", form["bytes_key"], "value",
        form["bytes_value"], "entries", ROOM, "name", "pending", "flags", 1)


def test_full(testbed):
    """What cannot be kept is refused: the proxy would not know where to."""
    world = testbed.ours
    pins = testbed.mount_bpffs("bpf-small").pins
    small_table(testbed, pins)
    pod = world.pod("small", 6)
    try:
        pod.program(PORT)
        world.capture(pod, pins=pins, cgroup=pod.cgroup.path)
        deaf = recorders.start(pod, "--deaf")
        task = pod.start(dial_and_close, HOST, ROOM + 4)
        wait.until(lambda: pending(pins) == ROOM, "the table to be full")
        found = pod.run(clients.outcome, world.outside.ip[4], PORT)
        check(found == "ECONNREFUSED", f"with a full table: {found}")
        task.stop()
        wait.until(lambda: pending(pins) == 0, "the table to be empty")
        pod.kill(deaf)
        recorders.start(pod)
        check(pod.run(recorders.met, HOST, PORT)["original"] == [HOST, PORT], "with an empty table it does not work")
        world.release(pod, pins=pins)
    finally:
        world.remove("small")
