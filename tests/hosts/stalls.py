"""What must not hold connections up, nor send them back."""

import os
import signal
import time

from hosts.cases import exchanged, must_have_counted, must_have_taken
from hosts.mesh import carried
from hosts.registry import SLOW, case
from hosts.world import Pod
from testkit.failure import Failure
from testkit.wait import until

TIMES = ("--times", "3000")  # the answer to 1000 bytes is longer than a ring
STALL = 0.5  # seconds: without news the peer probes a second after the program has begun to read, or later


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


CONNECTIONS, LEAST = 300, 240  # of these the stack must carry so many before its worker stands still
STILL = 0.5  # seconds: more than the stack's retransmission timers
LOST = 100  # connections that may go back for a loss nevertheless: on a busy machine acknowledgements are late. One batch is of 64
HEARD_SECONDS = 1  # until the worker has heard what has come


@case(part=SLOW)
def a_worker_that_stands_still(hosts, seed):
    """Acknowledgements that have come meanwhile are heard before timers are looked at."""
    hosts.server.start_stack()
    losses = []

    def count():
        losses.append(hosts.server.status()["reasons"].get("loss", 0))

    def stand_still():
        until(lambda: carried(hosts.server, "stack") >= LEAST, f"{LEAST} connections by the stack", 60)
        worker = hosts.server.worker()
        count()
        os.kill(worker, signal.SIGSTOP)
        time.sleep(STILL)
        os.kill(worker, signal.SIGCONT)
        time.sleep(HEARD_SECONDS)
        count()

    exchanged(hosts, "--connections", CONNECTIONS, "--rounds", "400", "--pause", "20", "--sizes", "100,1000", "--seed", seed,
              meanwhile=stand_still)
    if losses[1] - losses[0] > LOST:
        raise Failure(f"{losses[1] - losses[0]} connections have gone back for a loss although nothing was lost")
    must_have_taken(hosts.server, LEAST)


DESCRIPTORS = 300  # of each process of the stack, for as many connections
FEW = 4


@case(part=SLOW)
def a_stack_with_few_descriptors(hosts, seed):
    """It leaves connections to the kernel for which it has no room. Later ones of another program are carried, and it is woken."""
    hosts.server.start_stack(under=("prlimit", f"--nofile={DESCRIPTORS}"))
    exchanged(hosts, "--connections", DESCRIPTORS, "--rounds", "100", "--pause", "20", "--sizes", "100", "--seed", seed)
    must_have_counted(hosts.server, "fd-limit")
    before = hosts.server.status()["stack"]["upgraded"]
    exchanged(hosts, "--connections", FEW, "--rounds", "1500", "--pause", "1", "--seed", seed)
    taken = hosts.server.status()["stack"]["upgraded"] - before
    if taken < FEW:
        raise Failure(f"the stack has taken {taken} connections of the second program; it must take {FEW}")
    hosts.server.stop_stack()


MOST, MANY, OTHERS = 30, 60, 4  # connections of the stack, of the pod that wants all of them, and of the other pod


@case(part=SLOW)
def a_pod_leaves_connections_to_others(hosts, seed):
    """A pod that has more connections than the stack carries gets two thirds. Those of another pod are carried meanwhile."""
    path = hosts.directory / "broker"
    broker = hosts.server.process("broker", [hosts.programs_in / "sidestepd", "--address", path])
    until(path.exists, "the broker of the pods", 10, broker.must_run)
    greedy, other = (Pod(hosts, f"pod{number}", hosts.server, hosts.client, path, number) for number in (1, 2))
    hosts.server.start_stack("--broker", path, "--connections", MOST)

    def by_stack():
        """Connections of the other pod."""
        ours = [one for one in other.status()["connections"] if other.addresses[4] in one["local"] + one["remote"]]
        return sum(all(way["carrier"] == "stack" for way in one["directions"]) for one in ours)

    def ask_the_other():
        until(lambda: greedy.status()["reasons"].get("fd-limit"), "the first pod to want more than it gets", 30)
        exchanged(hosts, "--connections", OTHERS, "--rounds", "7000", "--pause", "1", "--sizes", "100", "--seed", seed,
                  server=other, meanwhile=lambda: until(lambda: by_stack() >= OTHERS // 2, "those of the other pod by the stack", 20))

    exchanged(hosts, "--connections", MANY, "--rounds", "1500", "--pause", "20", "--sizes", "100", "--seed", seed, server=greedy,
              meanwhile=ask_the_other)
    must_have_taken(hosts.server, OTHERS // 2)
