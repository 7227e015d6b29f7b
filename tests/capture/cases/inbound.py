"""What comes in to a captured pod."""

from capture import clients
from capture.worlds import EXCLUDED, PORT, SECOND_PORT
from testkit import wait
from testkit.failure import check


def dial(world, host, port):
    return world.outside.run(clients.visit, host, port)


def test_from_another_pod(testbed):
    """Whatever the port is, Envoy has it, and hands it on to the program that was meant."""
    for family, passthrough in ((4, "127.0.0.6"), (6, "::6")):
        for port in (PORT, SECOND_PORT):
            met = testbed.compare(lambda world: dial(world, world.server.ip[family], port))
            check((met["name"], met["seen_peer"]) == ("server", passthrough), f"IPv{family}: {met}")
            check(met["seen_local"][1] == port, f"IPv{family}: {met}")


def test_excluded_port(testbed):
    """The program itself answers."""
    for family in (4, 6):
        met = testbed.compare(lambda world: dial(world, world.server.ip[family], EXCLUDED[1]))
        check(not met["proxied"] and met["seen_peer"] == testbed.ours.outside.ip[family], f"IPv{family}: {met}")


def test_port_of_nobody(testbed):
    """Envoy has it and finds nobody."""
    for family in (4, 6):
        testbed.compare(lambda world: world.outside.run(clients.steps, world.server.ip[family], 9))


def test_what_envoy_sees(testbed):
    """What was dialled, and by whom."""
    def accesses(world):
        envoy = world.envoys["server"]
        before = envoy.mark()
        for family in (4, 6):
            dial(world, world.server.ip[family], PORT)
        wait.until(lambda: len(envoy.accesses(before)) == 2, "Envoy to write its log")
        return sorted([name, local, remote.rpartition(":")[0], source.rpartition(":")[0], to]
                      for name, local, remote, source, to in envoy.accesses(before))
    testbed.compare(accesses)
