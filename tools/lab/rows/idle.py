"""Many connections that have been upgraded and now sit still: what they hold and what they burn."""

import time

from .. import procfs
from ..ring import Traffic
from ..variant import PLAIN, SIDESTEP
from .base import Cell, Metric, Row, Sample, all_of, at_most

MB = 1e6
#: Opening and talking on all of them takes a while.
READY_LIMIT = 120


class Idle(Row):
    name = "idle"
    about = "10,000 idle upgraded connections"
    targets = "under 200 MB in all (both processes, link memory, broker), 0 % CPU"
    variants = (PLAIN, SIDESTEP)

    def cells(self):
        count = self.plan.idle_connections
        metrics = (
            Metric("memory_mb", "memory, MB", "lower", {"sidestep": at_most(200, "under 200 MB")}),
            Metric("cpu_percent", "CPU, %", "lower", {"sidestep": at_most(0.05, "0 %")}),
            Metric("upgraded", "upgraded ends", "higher", {"sidestep": all_of(2 * count, f"{2 * count:,}")}),
        )
        return [Cell(f"{count:,} idle connections", metrics, self.measure)]

    def measure(self, variant):
        programs, report = self.programs(), self.starter.report()
        count = ("--conns", str(self.plan.idle_connections))
        with programs.open_pair(variant, "idle", count, count, report) as (server, client):
            if programs.first_line(client, READY_LIMIT) != "ready":
                self.lab.fail(client, "is not ready")
            brokers = self.lab.brokers() if variant.by_ring else []
            pids = [stat.pid for stat in procfs.tree(server.pid, client.pid, *brokers)]
            values = {"cpu_percent": self.cpu_percent(pids), "memory_mb": memory(pids) / MB}
            programs.finish(client)
            programs.finish(server)
        traffic = report.total() if variant.by_ring else Traffic()
        return Sample(values | {"upgraded": traffic.upgraded}, traffic)

    def cpu_percent(self, pids):
        begin, before = time.monotonic_ns(), _nanoseconds(pids)
        time.sleep(self.plan.idle_seconds)
        return 100 * (_nanoseconds(pids) - before) / (time.monotonic_ns() - begin)


def _nanoseconds(pids):
    return sum(procfs.cpu_nanoseconds(pid) for pid in pids)


def memory(pids):
    """Bytes in all. Shared memory counts once: as the shares of those who map it, or, where more
    is allocated than they have touched, as the files' allocation."""
    every = [procfs.Memory(pid) for pid in pids]
    memfds = {}
    for one in every:
        memfds |= one.memfds
    return sum(one.own for one in every) + max(sum(one.shared for one in every), sum(memfds.values()))
