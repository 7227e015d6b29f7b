"""Two hosts under load, both with a stack."""

import random
import time

from hosts import holdings
from hosts.load import Load
from testkit.failure import Failure
from testkit.wait import until

PATIENCE = 60


class Scene:
    def __init__(self, hosts, seed, connections):
        self.hosts, self.chosen = hosts, random.Random(seed)
        self.both = (hosts.client, hosts.server)
        for host in self.both:
            self.start_stack(host)
        for host in self.both:
            until(lambda host=host: holdings.is_idle(host.worker()), f"the worker of {host.name} to have begun", 20)
        self.fresh = {host: holdings.of(host) for host in self.both}
        self.load = Load(hosts, connections)

    def start_stack(self, host):
        host.start_stack(*holdings.STACK_OPTIONS)

    def peer(self, host):
        return self.both[1 - self.both.index(host)]

    def by_stack(self, host):
        """The connections that the host's stack carries, as `sidestep status` tells them."""
        return [one for one in host.status()["connections"] if all(way["carrier"] == "stack" for way in one["directions"])]

    def ports(self, host, connections):
        """The ports of each, the client's first."""
        ends = [[one[end].rpartition(":")[2] for end in ("local", "remote")] for one in connections]
        return {">".join(pair if host is self.hosts.client else pair[::-1]) for pair in ends}

    def must_carry(self, host, least, renewed=0):
        """Waits until the stack carries so many connections, and returns them. `renewed`: so many connections begin anew until it
        does, since each return doubles the pause after which a connection is taken again. They begin in intervals that double, too:
        on a busy machine a new one may need seconds."""
        pause, next_time = 1, 0

        def carries():
            nonlocal pause, next_time
            carried = self.by_stack(host)
            if len(carried) >= least:
                return carried
            if renewed and time.monotonic() > next_time:
                self.load.renew(renewed)
                pause, next_time = 2 * pause, time.monotonic() + pause
            return None
        return until(carries, f"the stack of {host.name} to carry {least} connections", PATIENCE, host.stack.must_run)

    def end(self):
        """All connections end; then nothing has grown. Returns how many connections the stacks' last workers have taken."""
        self.load.end()
        for host in self.both:
            holdings.must_not_have_grown(host, self.fresh[host])
        totals = [host.stop_stack() for host in self.both]
        if any(taken != returned for taken, returned in totals):
            raise Failure(f"taken and given back: {totals}")
        return sum(taken for taken, _ in totals)
