"""Connections that a stack has given back because it ended are carried again by the next one."""

from hosts.cases import exchanged
from hosts.deeds import kill_worker, replace_worker
from hosts.mesh import carried
from hosts.registry import SLOW, case
from testkit.failure import Failure
from testkit.wait import until

CONNECTIONS = 4


@case(part=SLOW)
def the_next_stack_carries_what_lasts(hosts, seed):
    """After a worker that was killed, one that was replaced, and a whole stack that has ended."""
    host = hosts.server
    host.start_stack()
    taken = []

    def all_carried(by):
        until(lambda: carried(host, "stack") >= CONNECTIONS, f"{CONNECTIONS} connections by {by}", 20)

    def end_stacks():
        all_carried("the first worker")
        first = host.worker()
        kill_worker(host)
        host.another_worker(first)
        all_carried("the worker after one that was killed")
        second = host.worker()
        replace_worker(host)
        host.another_worker(second)
        all_carried("the worker after one that was replaced")
        taken.append(host.stop_stack()[0])
        host.start_stack()
        all_carried("another stack")

    exchanged(hosts, "--connections", CONNECTIONS, "--rounds", "14000", "--pause", "1", "--seed", seed, meanwhile=end_stacks)
    taken.append(host.stop_stack()[0])
    if taken[0] < 2 * CONNECTIONS or taken[1] < CONNECTIONS:
        raise Failure(f"the stacks say that they have taken {taken} connections")
