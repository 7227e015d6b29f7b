"""Connections on which nothing happens: the kernel watches over them, as it does without a stack."""

import time

from hosts.cases import exchanged, must_have_counted, must_have_taken
from hosts.mesh import carried
from hosts.registry import case
from testkit.failure import Failure
from testkit.wait import until

KEEPALIVE = 2
PROBES = 2
CONNECTIONS = 4


@case
def idle_connections_go_back(hosts, seed):
    """After half of the keepalive time. They are carried again when they are used again."""
    hosts.client.start_stack()
    exchanged(hosts, "--connections", CONNECTIONS, "--rounds", "1000", "--pause", "2", "--keepalive", KEEPALIVE, "--rest", KEEPALIVE,
              "--seed", seed)
    must_have_counted(hosts.client, "idle")
    must_have_taken(hosts.client, 2 * CONNECTIONS)


@case
def a_peer_that_is_gone_is_noticed(hosts, seed):
    """By keepalive, although the stack carries the connection when its peer goes."""
    hosts.client.start_stack()

    def cut():
        until(lambda: carried(hosts.client, "stack"), "a connection by stack", 20)
        until(lambda: "waits" in hosts.asking.output(), "the last answer", 60)
        is_carried = carried(hosts.client, "stack")
        hosts.server.namespace.ip(f"route add blackhole {hosts.client.addresses[4]}/32")
        if not is_carried:
            raise Failure("the stack no longer carried the connection when its peer went")
        began = time.monotonic()
        hosts.asking.popen.wait(30)
        late = time.monotonic() - began
        if late > 1.5 * KEEPALIVE + PROBES + 2:
            raise Failure(f"noticed after {late:.1f} s")

    exchanged(hosts, "--rounds", "1000", "--pause", "2", "--keepalive", KEEPALIVE, "--gone", "--seed", seed, meanwhile=cut)
    must_have_counted(hosts.client, "idle")
    must_have_taken(hosts.client, 1)
