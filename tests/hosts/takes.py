"""How long the request waits in which the stack takes a connection."""

from hosts.cases import exchanged, must_have_taken
from hosts.registry import SLOW, case
from testkit.failure import Failure

CONNECTIONS, LIVES = 4, 16
LEAST = 40  # of these connections the stack must have taken
LATER = 20  # milliseconds, at most


def slowest(hosts, seed):
    """Milliseconds of the slowest request of each connection, in ascending order."""
    exchanged(hosts, "--connections", CONNECTIONS, "--lives", LIVES, "--rounds", "150", "--pause", "2", "--seed", seed)
    return sorted(1000 * seconds for seconds in hosts.said["slowest"])


@case(part=SLOW)
def takes_delay_no_request(hosts, seed):
    """Half of the connections, and nine of ten, wait no longer than on the kernel and 20 ms more."""
    kernel = slowest(hosts, seed)
    hosts.client.start_stack()
    stack = slowest(hosts, seed)
    must_have_taken(hosts.client, LEAST)
    for share in (50, 90):
        at = share * (len(stack) - 1) // 100
        print(f"figure: slowest request of a connection, p{share}: kernel {kernel[at]:.1f} ms, taken {stack[at]:.1f} ms", flush=True)
        if stack[at] > kernel[at] + LATER:
            raise Failure(f"p{share} of the slowest requests: {stack[at]:.1f} ms; on the kernel {kernel[at]:.1f} ms")
