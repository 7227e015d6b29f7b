"""Connections whose packets come with other addresses than their sockets have: no stack may take them."""

from hosts.cases import exchanged, must_have_taken, taken_by_now
from hosts.registry import case
from testkit.commands import run
from testkit.failure import Failure
from testkit.wait import until

DIALLED = "10.9.0.77"
CONNECTIONS = 4
PATIENCE = 30


@case
def translated_addresses_stay_with_the_kernel(hosts, seed):
    """The server's host sends what comes to another address to its own (DNAT): the client's socket knows the other address only."""
    translate(hosts)
    hosts.server.start_stack()
    hosts.client.start_stack()
    enough = hosts.directory / "enough"

    def look():
        # The connections last until both stacks have judged them, however long that takes on a busy machine. If they end earlier, the
        # client says why.
        alive = hosts.asking.must_run
        until(lambda: len(unseen(hosts.server)) == CONNECTIONS, "all connections to have the reason unseen", PATIENCE, alive)
        must_be_explained(hosts.server)
        until(lambda: taken_by_now(hosts.client) >= CONNECTIONS, "the client's stack to take all connections", PATIENCE, alive)
        enough.touch()

    exchanged(hosts, "--connections", CONNECTIONS, "--until", enough, "--pause", "1", "--seed", seed, dialled=DIALLED, meanwhile=look)
    if (counted := hosts.server.status()["reasons"].get("unseen", 0)) != CONNECTIONS:
        raise Failure(f"of {CONNECTIONS} connections {counted} count as unseen")
    must_have_taken(hosts.client, CONNECTIONS)
    must_have_taken(hosts.server, 0)


def translate(hosts):
    hosts.server.namespace.ip(f"address add {DIALLED}/32 dev lo")
    rules = "add table ip nat; add chain ip nat pre { type nat hook prerouting priority -100; }; " \
            f"add rule ip nat pre ip daddr {DIALLED} dnat to {hosts.server.addresses[4]}"
    run(*hosts.server.around(["nft", rules]))
    hosts.client.namespace.ip(f"route add {DIALLED}/32 via {hosts.server.addresses[4]}")


def unseen(host):
    """Names of the connections that the kernel keeps since their packets do not come by the device."""
    connections = host.status()["connections"]
    return [one["id"] for one in connections if any(way["reason"] == "unseen" for way in one["directions"])]


def must_be_explained(host):
    said = host.command("explain", unseen(host)[0])
    if "NAT" not in said:
        raise Failure(f"`sidestep explain` does not tell why the kernel keeps the connection: {said}")
