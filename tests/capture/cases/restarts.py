"""Envoy comes and goes. What it does not take is refused; nothing goes around it."""

from capture import loads
from capture.clients import outcome
from capture.worlds import PORT
from testkit.failure import check


def directions(world):
    """What Envoy of the client's pod has to do with: who dials, and whom."""
    return [(world.client, world.outside), (world.outside, world.client)]


def test_down(testbed):
    """The program at the other end would answer in the clear."""
    def outcomes(world):
        envoy = world.envoys["client"]
        envoy.process.stop()
        world.client.processes.remove(envoy.process)
        try:
            return [asker.run(outcome, answerer.ip[family], PORT) for asker, answerer in directions(world)
                    for family in (4, 6)]
        finally:
            envoy.start()
    found = testbed.compare(outcomes)
    check(set(found) == {"ECONNREFUSED"}, f"while Envoy is down: {found}")
    for asker, answerer in directions(testbed.ours):
        check(asker.run(outcome, answerer.ip[4], PORT) == "proxied", "Envoy runs again, and does not take connections")


def test_killed_under_load(testbed):
    """Again and again: what is not proxied fails, and nothing is direct."""
    world = testbed.ours
    envoy = world.envoys["client"]
    tasks = [loads.start(*direction) for direction in directions(world)]
    for _ in range(10 if testbed.slow else 2):
        world.client.kill(envoy.process)
        envoy.start()
        loads.wait_for_more(tasks)
    for task in tasks:
        counts = loads.stop(task)
        check(counts.get("proxied", 0) > 0 and set(counts) <= {"proxied", *loads.BROKEN}, f"{counts}")


def test_hot_restart(testbed):
    """Sockets that listen are handed over: no connection fails."""
    world = testbed.ours
    tasks = [loads.start(*direction) for direction in directions(world)]
    for _ in range(5 if testbed.slow else 1):
        world.envoys["client"].restart()
        loads.wait_for_more(tasks)
    for task in tasks:
        counts = loads.stop(task)
        check(set(counts) == {"proxied"}, f"{counts}")
    for direction in directions(world):
        check(outcome_of(*direction) == "proxied", "the new Envoy does not take connections")


def outcome_of(asker, answerer):
    return asker.run(outcome, answerer.ip[4], PORT)


def test_captured_before_envoy_runs(testbed):
    """The client's pod was."""
    for asker, answerer in directions(testbed.ours):
        check(outcome_of(asker, answerer) == "proxied", f"from {asker.name} to {answerer.name}")


def test_captured_while_envoy_runs(testbed):
    """The server's pod was: listeners that are there already are found."""
    world = testbed.ours
    for asker, answerer in [(world.server, world.outside), (world.outside, world.server)]:
        for family in (4, 6):
            found = asker.run(outcome, answerer.ip[family], PORT)
            check(found == "proxied", f"from {asker.name} to {answerer.name}, IPv{family}: {found}")
