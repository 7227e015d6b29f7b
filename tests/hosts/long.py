"""Connections with long messages, which the kernel carries better: it gives the device many segments at a time."""

from hosts.cases import exchanged, must_have_counted, must_have_taken
from hosts.registry import case

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
def the_operator_says_what_is_long(hosts, seed):
    hosts.server.start_stack("--longest-message", "40000")
    exchanged(hosts, *LONG, *MANY, "--seed", seed, serve=TIMES)
    must_have_taken(hosts.server, 4)
