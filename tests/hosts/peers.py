"""Kernels at the other end with other settings: each kind of congestion control, and each set of TCP options."""

from itertools import product
from pathlib import Path

from hosts.cases import exchanged, must_have_taken, taken_by_now
from hosts.registry import SLOW, case
from testkit.failure import Failure

CONNECTIONS = 4
LEAST = 3  # of these the stack must have taken, each time
LOAD = ("--connections", CONNECTIONS, "--rounds", "800", "--pause", "0.5")
SYSCTLS = ("tcp_sack", "tcp_timestamps", "tcp_window_scaling")


def exchanged_by_stack(hosts, what, seed, *options, **named):
    """The server's stack, which runs, takes connections of the client's kernel."""
    before = taken_by_now(hosts.server)
    exchanged(hosts, *LOAD, "--seed", seed, *options, **named)
    taken = taken_by_now(hosts.server) - before
    if taken < LEAST:
        raise Failure(f"{what}: the stack has taken {taken} of {CONNECTIONS} connections")


@case(part=SLOW)
def congestion_controls_of_the_peer(hosts, seed):
    """All that its kernel has."""
    names = hosts.client.namespace.call(lambda: Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split())
    hosts.server.start_stack()
    for name in names:
        exchanged_by_stack(hosts, name, seed, "--congestion", name)
    must_have_taken(hosts.server, LEAST * len(names))


@case(part=SLOW)
def options_that_the_peer_does_not_agree_to(hosts, seed):
    hosts.server.start_stack()
    settings = [*product((0, 1), repeat=len(SYSCTLS))]
    for setting in settings:
        chosen = dict(zip(SYSCTLS, setting))
        for name, value in chosen.items():
            hosts.client.namespace.sysctl(f"ipv4/{name}", value)
        for family in (4, 6):
            exchanged_by_stack(hosts, f"IPv{family}, {chosen}", seed, family=family)
    must_have_taken(hosts.server, LEAST * 2 * len(settings))
