"""`sidestep capture` once more, under load: programs are exchanged, and no connection fails or goes around."""

from capture import loads
from testkit.commands import bpftool
from testkit.failure import check


def program_ids(world):
    """Of every link to the cgroup that is pinned, and of those to the namespaces of both pods: which program it has."""
    links = [path for path in world.pins.rglob("*") if path.parent.name == "links" and path.is_file()]
    inodes = {pod.namespace.path.stat().st_ino for pod in (world.client, world.server)}
    inbound = {name: link["prog_id"] for name, link in world.inbound().items() if link["netns_ino"] in inodes}
    check(len(inbound) == len(inodes), f"programs of the pods' namespaces: {inbound}")
    return {path.name: bpftool("link", "show", "pinned", path)["prog_id"] for path in links} | inbound


def test_again(testbed):
    world = testbed.ours
    before = program_ids(world)
    tasks = [loads.start(world.client, world.outside), loads.start(world.outside, world.server),
             loads.start(world.client, world.server)]
    for _ in range(20 if testbed.slow else 3):
        for pod in (world.client, world.server):
            world.capture(pod)
        loads.wait_for_more(tasks)
    for task in tasks:
        counts = loads.stop(task)
        check(set(counts) == {"proxied"}, f"{counts}")
    after = program_ids(world)
    check(before.keys() == after.keys(), f"links were {sorted(before)}, and are {sorted(after)}")
    kept = [name for name in before if before[name] == after[name]]
    check(not kept, f"these programs were not exchanged: {kept}")


def test_rules_change(testbed):
    """Other rules come into force at once; the rest stays as it is."""
    world = testbed.ours
    tasks = [loads.start(world.client, world.outside), loads.start(world.outside, world.client)]
    for _ in range(3):
        world.capture(world.client, "-x", "192.0.2.0/24")
        world.capture(world.client)
        loads.wait_for_more(tasks)
    for task in tasks:
        counts = loads.stop(task)
        check(set(counts) == {"proxied"}, f"{counts}")
