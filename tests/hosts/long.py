"""Connections with long messages, which the kernel carries better: it gives the device many segments at a time."""

from hosts.cases import exchanged, must_have_counted, must_have_taken, taken_by_now
from hosts.registry import case
from testkit.wait import until

TIMES = ("--times", "100")
LONG = ("--connections", "4", "--rounds", "0", *TIMES)
SOME, MANY = ("--bulk", "400"), ("--bulk", "3200")


@case
def long_answers_stay_with_the_kernel(hosts, seed):
    """From the first one."""
    hosts.server.start_stack()
    exchanged(hosts, *LONG, *SOME, "--seed", seed, serve=TIMES)
    must_have_counted(hosts.server, "bulk")
    must_have_taken(hosts.server, 0)


@case
def they_give_their_slots_back(hosts, seed):
    """The kernel carries them as fast as any connection without a slot. Once the messages are short, they are offered again."""
    are_short, is_enough = (hosts.server.bed.directory / f"{seed}.{name}" for name in ("short", "enough"))
    slots = lambda: len(hosts.server.status()["connections"])  # noqa: E731 - a line is enough
    hosts.server.start_stack("--ring-size", str(1 << 23))  # the kernel's window grows with the long messages

    def turns():
        until(lambda: slots() > 0, "a slot of a connection with long answers", 20)
        until(lambda: slots() == 0, "no slot, since the answers stay long", 20)
        are_short.touch()
        until(lambda: taken_by_now(hosts.server) >= 2, "the stack to take what has short messages by now", 30)
        is_enough.touch()

    exchanged(hosts, "--connections", "2", "--bulk-until", are_short, "--until", is_enough, "--sizes", "20", *TIMES,
              "--seed", seed, serve=TIMES, meanwhile=turns)
    must_have_counted(hosts.server, "bulk")
    must_have_taken(hosts.server, 2)


@case
def the_operator_says_what_is_long(hosts, seed):
    hosts.server.start_stack("--longest-message", "40000")
    exchanged(hosts, *LONG, *MANY, "--seed", seed, serve=TIMES)
    must_have_taken(hosts.server, 4)
