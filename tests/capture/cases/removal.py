"""What `sidestep capture --remove` leaves: nothing."""

import contextlib
import mmap

from capture import clients, loads
from capture.worlds import PORT
from testkit import wait
from testkit.commands import bpftool, run
from testkit.failure import check


def ids(kind, paths):
    return {bpftool(kind, "show", "pinned", path)["id"] for path in paths}


def alive(kind):
    """Of the whole machine, by number."""
    return {one["id"] for one in bpftool(kind, "list")}


def test_nothing_is_left(testbed):
    """Programs, links, tables, pins, the address of the loopback; connections go where they were meant to go."""
    world = testbed.ours
    pinned = [path for path in world.pins.rglob("*") if path.is_file()]
    maps = ids("map", [path for path in pinned if path.parent.name.startswith("maps-")])
    linked = [path for path in pinned if path.parent.name in ("links", "inbound")]
    links = ids("link", linked)
    programs = {bpftool("link", "show", "pinned", path)["prog_id"] for path in linked}
    check(len(maps) > 10 and len(links) > 12 and programs <= alive("prog"), f"{maps}, {links}, {programs}")
    tasks = [loads.start(world.client, world.outside), loads.start(world.outside, world.server)]
    loads.wait_for_more(tasks)
    for pod in (world.client, world.server):
        world.release(pod)
    loads.wait_for_more(tasks)
    for task in tasks:
        counts = loads.stop(task)
        check(set(counts) == {"proxied", "direct"}, f"while capture ended: {counts}")
    # The kernel frees them when nobody can be using them any more, which takes seconds where there is much to do.
    for kind, numbers in (("map", maps), ("link", links), ("prog", programs)):
        wait.until(lambda: not numbers & alive(kind), f"every {kind} of {sorted(numbers)} to be gone", 60)
    check(not world.pins.exists(), f"{world.pins} is left")
    check(not bpftool("cgroup", "tree", world.cgroup.path), "programs are left at the cgroup")
    for pod in (world.client, world.server):
        check(not has_passthrough(pod), "::6 is left")
        found = pod.run(clients.outcome, world.outside.ip[4], PORT)
        check(found == "direct", f"{pod.name}: {found}")


def test_what_the_proxy_has_goes_on(testbed):
    """Of both directions and families; ::6, from which it dials its own pod, stays as long."""
    world = testbed.ours
    for pod in (world.client, world.server):
        world.capture(pod)
    held = [world.outside.start(hold, list(world.client.ip.values()), begun := mmap.mmap(-1, 1)),
            world.client.start(hold, list(world.outside.ip.values()), begun_too := mmap.mmap(-1, 1))]
    wait.until(lambda: begun[0] and begun_too[0], "connections")
    for pod in (world.client, world.server):
        world.release(pod)
    check(has_passthrough(world.client) and not has_passthrough(world.server), "::6 is not where it is used, or is elsewhere")
    found = [task.stop() for task in held]
    check(found == [["proxied"] * 2] * 2, f"{found}")
    wait.until(lambda: world.release(world.client) or not has_passthrough(world.client), "::6 to go")


def hold(hosts, begun, stopped):
    """Connections that are there already, and whether they still are when it is told to stop."""
    with contextlib.ExitStack() as stack:
        conns = [stack.enter_context(clients.Conn(host, PORT)) for host in hosts]
        seen = ["proxied" if clients.is_proxied(conn.line()) else "direct" for conn in conns]
        begun[0] = 1
        while not stopped():
            wait.time.sleep(wait.POLL_SECONDS)
        for conn in conns:
            conn.echo(b"x" * 1000)
    return seen


def has_passthrough(pod):
    return "::6" in run("ip", "-n", pod.namespace.name, "-6", "addr", "show", "dev", "lo")


def test_once_more(testbed):
    """What was removed can be captured again, with the Envoy that is there."""
    world = testbed.ours
    for pod in (world.client, world.server):
        world.capture(pod)
    for asker, answerer in ((world.client, world.outside), (world.outside, world.server)):
        for family in (4, 6):
            found = asker.run(clients.outcome, answerer.ip[family], PORT)
            check(found == "proxied", f"from {asker.name} to {answerer.name}, IPv{family}: {found}")
