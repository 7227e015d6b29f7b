"""The list of cases."""

from collections import namedtuple

from hosts.world import Hosts

# How long a case takes: seconds; longer than ten; minutes, optimized against the kernel.
QUICK, SLOW, MORE = PARTS = ("quick", "slow", "more")
Case = namedtuple("Case", "function bed part")
CASES = []


def case(function=None, *, bed=Hosts, part=QUICK):
    """The function is called with its bed and a seed."""
    def add(function):
        CASES.append(Case(function, bed, part))
        return function
    return add(function) if function else add
