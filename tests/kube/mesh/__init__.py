"""Istio's mesh, end to end: istiod, sidecars, STRICT mutual TLS; redirected by rules, and by Sidestep.

The same calls are made both ways. What comes of each must be what calls.py says, and so the same; and nothing that a
sidecar was to seal may be read on the way.
"""

from kube import istio_rules
from testkit import paths
from testkit.console import say

from . import matrix
from .calls import CALLS
from .istiod import Istiod
from .ways import WAYS
from .world import World


def run(testbed, options, checks):
    same_rules(checks)
    ways = [way for way in WAYS if way.name in options.way] if options.way else [
        way for way in WAYS if options.world == "all" or not way.needs_sidestep]
    if any(way.needs_sidestep for way in ways):
        paths.built("release", "sidestep", "sidestep-agent")
    istiod = Istiod(testbed.control_plane)
    istiod.start()
    say("mesh: istiod runs")
    seen = {}
    for number, way in enumerate(ways):
        with World(way, number, testbed, istiod) as world:
            say(f"mesh: {way.name}: pods and sidecars run")
            for name, is_valid in world.validated.items():
                checks.check(is_valid, f"mesh: {way.name}: Istio's own validation fails in {name}")
            seen[way.name] = matrix.run(world)
            world.must_run()
        for call in CALLS:
            found = seen[way.name][call.name]
            checks.check(matrix.is_right(call, found), f"mesh: {way.name}: {call.who} calls {call.name}: saw {found}, "
                                                       f"expected {matrix.expected(call)}")
        say(f"mesh: {way.name}: {len(CALLS)} calls made")
    checks.figures["seen"] = seen


def same_rules(checks):
    """pilot-agent still writes what is in the files."""
    rules = istio_rules.Rules()
    for name, case in istio_rules.CASES.items():
        file = istio_rules.path(name)
        is_same = file.exists() and file.read_text() == rules.text(case)
        checks.check(is_same, f"{file} is not what istio-iptables writes: run tests/kube/istio_rules.py")
    say(f"mesh: {len(istio_rules.CASES)} combinations of the flags of istio-iptables compared")
