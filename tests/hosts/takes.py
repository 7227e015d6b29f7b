"""How long the request waits in which the stack takes a connection."""

from hosts.cases import exchanged, must_have_taken
from hosts.registry import SLOW, case
from testkit.failure import Failure

CONNECTIONS, LIVES = 4, 16
LEAST = 40  # of these connections the stack must have taken
LATER = 20  # milliseconds, at most
SHARES = {"p50": 50, "p90": 90, "p99": 99, "max": 100}
# Of so few connections the others are single requests, and any is late at times on a busy machine: they are told, and not judged.
JUDGED = "p50", "p90"


def slowest(hosts, seed):
    """Milliseconds that the slowest request of a connection takes. `max`: the slowest of all requests."""
    exchanged(hosts, "--connections", CONNECTIONS, "--lives", LIVES, "--rounds", "150", "--pause", "2", "--seed", seed)
    each = sorted(1000 * seconds for seconds in hosts.said["slowest"])
    return {name: each[share * (len(each) - 1) // 100] for name, share in SHARES.items()}


@case(part=SLOW)
def takes_delay_no_request(hosts, seed):
    """Half of the connections, and nine of ten, wait no longer than on the kernel and 20 ms more."""
    kernel = slowest(hosts, seed)
    hosts.client.start_stack()
    stack = slowest(hosts, seed)
    hosts.figures = {"seed": seed, "connections": CONNECTIONS * LIVES, "milliseconds": {"kernel": kernel, "taken": stack}}
    for name in SHARES:
        print(f"figure: slowest request of a connection, {name}: kernel {kernel[name]:.1f} ms, taken {stack[name]:.1f} ms", flush=True)
    must_have_taken(hosts.client, LEAST)
    for name in JUDGED:
        if stack[name] > kernel[name] + LATER:
            raise Failure(f"{name} of the slowest requests: {stack[name]:.1f} ms; on the kernel {kernel[name]:.1f} ms")
