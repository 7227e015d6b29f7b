"""The list of cases."""

from collections import namedtuple

from hosts.world import Hosts

Case = namedtuple("Case", "function bed more")
CASES = []


def case(function=None, *, bed=Hosts, more=False):
    """The function is called with its bed and a seed. `more`: it takes long, and runs only with --more."""
    def add(function):
        CASES.append(Case(function, bed, more))
        return function
    return add(function) if function else add
