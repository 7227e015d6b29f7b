"""What must not hold a connection up."""

from hosts.cases import exchanged, must_have_taken
from hosts.mesh import carried
from hosts.registry import case
from testkit.failure import Failure
from testkit.wait import until

TIMES = ("--times", "3000")  # the answer to 1000 bytes is longer than a ring
STALL = 0.2  # seconds: without news the peer probes a second after the program has begun to read, or later


@case
def a_program_that_reads_again(hosts, seed):
    """Its ring was full. The peer learns at once that there is room, and need not probe for it."""
    hosts.client.start_stack("--longest-message", "1000000000")

    def fill():
        until(lambda: "reads nothing" in hosts.asking.output(), "the last message", 60)
        if not carried(hosts.client, "stack"):
            raise Failure("the stack does not carry the connection whose program reads nothing")

    exchanged(hosts, *TIMES, "--sizes", "1", "--rounds", "1500", "--pause", "1", "--unread", "1000", "--seed", seed, serve=TIMES,
              meanwhile=fill)
    if hosts.said["stall"] > STALL:
        raise Failure(f"the program has waited {hosts.said['stall']:.2f} s for bytes that the peer had")
    must_have_taken(hosts.client, 1)
