"""Explicit congestion notification (RFC 3168)."""

import re
from pathlib import Path

from hosts.cases import exchanged
from hosts.registry import case
from hosts.wire import WiredHosts
from testkit.failure import Failure

MARKS = {"mark": 40}
LOAD = ("--connections", "8", "--rounds", "1500")


def told_of(host, counter):
    """A counter of /proc/net/netstat in the host's namespace."""
    lines = host.namespace.call(Path("/proc/thread-self/net/netstat").read_text).splitlines()
    for names, values in zip(lines[::2], lines[1::2]):
        if counter in names.split():
            return int(values.split()[names.split().index(counter)])
    raise Failure(f"/proc/net/netstat has no {counter}")


@case(bed=WiredHosts)
def marks_of_congestion(hosts, seed):
    """A router marks what it would have dropped. Whoever carries the connection, the sender is told."""
    for host in (hosts.client, hosts.server):
        host.namespace.sysctl("ipv4/tcp_ecn", 1)
    for by_stack in (False, True):
        if by_stack:
            hosts.server.start_stack()
        before = told_of(hosts.client, "TCPDeliveredCE")
        hosts.wire.start(seed, MARKS)
        exchanged(hosts, *LOAD, "--seed", seed)
        marked = hosts.wire.stop()["marked"]
        echoed = told_of(hosts.client, "TCPDeliveredCE") - before
        if not marked or not echoed:
            raise Failure(f"by the stack {by_stack}: {marked} marks, of which the client has heard {echoed}")
    given_back = len(re.findall("reports congestion", hosts.server.stack.output()))
    if not given_back:
        raise Failure(f"no connection has gone back for a mark:\n{hosts.server.stack.tail()}")
    taken, returned = hosts.server.stop_stack()
    if taken < 8 or taken != returned:
        raise Failure(f"taken {taken}, given back {returned}")
