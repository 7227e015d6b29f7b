"""Rules of istio-iptables in a pod that is captured, as where one is exchanged for the other."""

from capture import recorders
from capture.iptables import FAMILIES, nat
from capture.worlds import PORT
from testkit.commands import run
from testkit.failure import check
from testkit.paths import program

# At which nobody listens but the proxy.
INBOUND = 9999


def met(world, pod):
    """What the proxy is told in both directions."""
    found = []
    for family in (4, 6):
        found.append(pod.run(recorders.met, world.outside.ip[family], PORT))
        found.append(world.outside.run(recorders.met, pod.ip[family], INBOUND))
    return found


def test_both(testbed):
    """The proxy is told what was dialled, whoever has brought it there."""
    world = testbed.ours
    with recorders.pod(world) as pod:
        before = met(world, pod)
        for command, loopback, passthrough in FAMILIES:
            run(*pod.namespace.around([program(command)]), stdin=nat(loopback, passthrough, False))
        after = met(world, pod)
        told = [[pod.ip[family], INBOUND] for family in (4, 6)]
        check([one["original"] for one in after[1::2]] == told, f"of what comes in: {after}")
        check(after == before, f"with the rules: {after}; without them: {before}")
