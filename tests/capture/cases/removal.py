"""What `sidestep capture --remove` leaves: nothing."""

import clients
import loads
from commands import bpftool, run
from support import wait
from support.failure import check
from worlds import PORT


def ids(kind, paths):
    return {bpftool(kind, "show", "pinned", path)["id"] for path in paths}


def alive(kind):
    """Of the whole machine, by number."""
    return {one["id"] for one in bpftool(kind, "list")}


def test_nothing_is_left(lab):
    """Programs, links, tables, pins, the address of the loopback; connections go where they were meant to go."""
    world = lab.ours
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
        check("::6" not in run("ip", "-n", pod.namespace.name, "-6", "addr", "show", "dev", "lo"), "::6 is left")
        found = pod.run(clients.outcome, world.outside.ip[4], PORT)
        check(found == "direct", f"{pod.name}: {found}")


def test_once_more(lab):
    """What was removed can be captured again, with the Envoy that is there."""
    world = lab.ours
    for pod in (world.client, world.server):
        world.capture(pod)
    for asker, answerer in ((world.client, world.outside), (world.outside, world.server)):
        for family in (4, 6):
            found = asker.run(clients.outcome, answerer.ip[family], PORT)
            check(found == "proxied", f"from {asker.name} to {answerer.name}, IPv{family}: {found}")
