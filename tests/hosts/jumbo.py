"""Frames that are longer than the memory that AF_XDP has for a piece of one: the stack receives them, and sends shorter ones."""

from hosts.cases import exchanged, must_have_taken
from hosts.registry import case
from testkit.wait import until

MTU = 9000
# The last one fills a frame.
SIZES = "4096,6000,8000,8948"
CONNECTIONS = 8
LOAD = ("--connections", CONNECTIONS, "--rounds", "400", "--pause", "1", "--sizes", SIZES)


def by_stack(host):
    """Bytes that the host's stacks have had from programs, and given to them."""
    stack = host.status()["stack"]
    return stack["ring_rx"] + stack["ring_tx"]


@case
def messages_in_long_frames(hosts, seed):
    """By the kernel, by a stack at either end, and by stacks at both. A connection whose message does not leave goes back to the kernel,
    which carries it for half a second at least: then hardly a byte would go by the stack."""
    client, server = hosts.client, hosts.server
    for host in (client, server):
        host.namespace.ip(f"link set {host.device} mtu {MTU}")
    for stacks in ((), (server,), (client,), (client, server)):
        for host in stacks:
            host.start_stack("--longest-message", "16384")
        before = {host: by_stack(host) for host in stacks}
        exchanged(hosts, *LOAD, "--seed", seed)
        for host in stacks:
            # As many bytes as came back are half of all.
            least = before[host] + hosts.said["bytes"]
            until(lambda host=host, least=least: by_stack(host) >= least, f"half of the bytes to go by the stack of {host.name}", 10)
            must_have_taken(host, CONNECTIONS * 3 // 4)
