"""What a program of a captured pod dials."""

from capture import clients
from capture.envoy import VIP_PORT, VIPS
from capture.worlds import PORT
from testkit import wait
from testkit.failure import Failure, check

NOBODY_PORT = 9
# The last part of the addresses of one more pod.
LOST = 20


def dial(world, host, port=PORT):
    return world.client.run(clients.visit, host, port)


def test_pod_address(testbed):
    """It is reached through Envoy, from the pod's address, and the program sees whom it has dialled."""
    for family in (4, 6):
        met = testbed.compare(lambda world: dial(world, world.outside.ip[family]))
        check(met["proxied"] and met["name"] == "outside", f"IPv{family}: {met}")
        check(met["local"] == testbed.ours.client.ip[family], f"IPv{family}: its own address is {met['local']}")
        check(met["peer"] == [testbed.ours.outside.ip[family], PORT], f"IPv{family}: its peer is {met['peer']}")


def test_mapped_client(testbed):
    """An IPv6 socket dials an IPv4 address, as Java, Node and Go do."""
    host = f"::ffff:{testbed.ours.outside.ip[4]}"
    met = testbed.compare(lambda world: dial(world, host))
    check(met["proxied"] and met["peer"] == [host, PORT], f"{met}")


def test_captured_pod(testbed):
    """From Envoy to Envoy."""
    for family in (4, 6):
        met = testbed.compare(lambda world: dial(world, world.server.ip[family]))
        check(met["name"] == "server" and met["seen_peer"] in ("127.0.0.6", "::6"), f"IPv{family}: {met}")


def test_service_of_envoy(testbed):
    """Envoy finds the listener for the address that was dialled, and knows where that leads."""
    for family in (4, 6):
        vip = VIPS["outside"][family]
        met = testbed.compare(lambda world: dial(world, vip, VIP_PORT))
        check((met["name"], met["peer"]) == ("outside", [vip, VIP_PORT]), f"IPv{family}: {met}")


def test_envoy_calls_its_own_pod(testbed):
    """A Service leads back to the pod that dials: Envoy dials it by its address, which is captured as inbound."""
    for family, passthrough in ((4, "127.0.0.6"), (6, "::6")):
        met = testbed.compare(lambda world: dial(world, VIPS["self"][family], VIP_PORT))
        check((met["name"], met["seen_peer"]) == ("client", passthrough), f"IPv{family}: {met}")


def test_own_address(testbed):
    """A program that dials its own pod meets it itself."""
    for family in (4, 6):
        for host in (testbed.ours.client.ip[family], "127.0.0.1" if family == 4 else "::1"):
            met = testbed.compare(lambda world: dial(world, host))
            check(met["name"] == "client" and not met["proxied"], f"{host}: {met}")


def test_refused_port(testbed):
    """Envoy has accepted already: the program's connection is there, and ends."""
    for family in (4, 6):
        said = testbed.compare(lambda world: world.client.run(clients.steps, world.outside.ip[family], NOBODY_PORT))
        check(said[0] == ("connect", None), f"IPv{family}: {said}")


def test_no_route(testbed):
    """Where no route leads, nothing is dialled."""
    def said(world):
        pod = world.pod("lost", LOST)
        try:
            for family in (4, 6):
                pod.namespace.ip(f"-{family} route del default")
            world.capture(pod)
            return [pod.run(clients.steps, VIPS["outside"][family], VIP_PORT) for family in (4, 6)]
        finally:
            world.remove("lost")
    found = testbed.compare(said)
    check(found == [[("connect", "ENETUNREACH")]] * 2, f"{found}")


def test_what_envoy_sees(testbed):
    """Its log names the same addresses."""
    def accesses(world):
        envoy = world.envoys["client"]
        before = envoy.mark()
        for family in (4, 6):
            dial(world, world.outside.ip[family])
            dial(world, VIPS["outside"][family], VIP_PORT)
            dial(world, VIPS["self"][family], VIP_PORT)
        wait.until(lambda: len(envoy.accesses(before)) == 8, "Envoy to write its log")
        return sorted([name, local, host(remote), host(source), to] if name != "inbound" else [name, local]
                      for name, local, remote, source, to in envoy.accesses(before))
    testbed.compare(accesses)


def host(endpoint):
    """Without the port, which is any."""
    return endpoint.rpartition(":")[0]


def test_proxy_itself(testbed):
    """What belongs to the proxy's user, or to its group, goes where it wants."""
    for owner in ((1337, 1000), (1000, 1337)):
        met = testbed.compare(lambda world: world.client.run(clients.visit, world.outside.ip[4], PORT, owner=owner))
        if met["proxied"]:
            raise Failure(f"{owner}: {met}")
