"""redis-benchmark against redis."""

import csv
import io
import subprocess

from .. import settings
from ..services import start_redis
from .base import Cell, Metric, Row, Sample, at_least


class Redis(Row):
    name = "redis"
    about = "redis-benchmark GET and SET, 50 clients, no pipelining"
    targets = "requests/s 3.5x"

    def prepare(self):
        self.binary = self.places.tool("redis-benchmark")
        self.ports = {
            variant.name: start_redis(self.lab, self.places, self.starter, variant)
            for variant in self.measured
        }

    def cells(self):
        goals = {"sidestep": at_least(3.5)}
        metrics = tuple(Metric(test, f"{test} requests/s", "higher", goals) for test in ("GET", "SET"))
        return [Cell(f"redis, {self.plan.redis_clients} clients", metrics, self.measure)]

    def measure(self, variant):
        report = self.starter.report()
        argv = [self.binary, "-h", "127.0.0.1", "-p", self.ports[variant.name], "-t", "get,set", "--csv"]
        argv += ["-c", self.plan.redis_clients, "-n", self.plan.redis_requests]
        with self.lab.scope():
            name = f"redis-benchmark-{variant.name}"
            popen = self.starter.start(variant, name, argv, report, stdout=subprocess.PIPE)
            try:
                out, _ = popen.communicate(timeout=60 + settings.RUN_SLACK)
            except subprocess.TimeoutExpired:
                self.lab.fail(popen, "does not end")
        rates = {row["test"]: float(row["rps"]) for row in csv.DictReader(io.StringIO(out.decode()))}
        if popen.returncode != 0 or set(rates) != {"GET", "SET"}:
            self.lab.fail(popen, f"ended with {popen.returncode} and printed {out.decode()[-300:]!r}")
        return Sample(rates, report.total())
