"""One run of wrk: rate, latencies, CPU of everybody who took part, and what went by ring."""

import json
import resource
import subprocess
from dataclasses import dataclass
from pathlib import Path

from . import procfs, settings
from .errors import LabError
from .ring import Traffic

SCRIPT = Path(__file__).with_name("wrk.lua")


@dataclass
class Run:
    """Times in microseconds; `cpu` in seconds for 100,000 requests."""

    rate: float
    p50: float
    p90: float
    p99: float
    cpu: float
    traffic: Traffic


class Wrk:
    """wrk with one thread, against a chain that runs all the time."""

    def __init__(self, lab, places, starter):
        self._lab, self._starter = lab, starter
        self._wrk = places.tool("wrk")

    def run(self, chain, path, connections, seconds, client=None):
        """`client`: how wrk itself is started, if not as the chain is."""
        client = client or chain.variant
        report = self._starter.report()
        argv = [self._wrk, "-t1", f"-c{connections}", f"-d{seconds}s", "-s", SCRIPT, chain.url(path)]
        before = self._cpu(chain)
        counts = self._counts(client, argv, report, seconds)
        cpu = self._cpu(chain) - before
        if counts["requests"] == 0:
            raise LabError(f"wrk to {path}, {chain.variant.title}: not one request was answered")
        if counts["errors"]:
            raise LabError(f"wrk to {path}, {chain.variant.title}: {counts['errors']} failed requests")
        return Run(
            rate=counts["requests"] / counts["duration_us"] * 1e6,
            p50=counts["p50"],
            p90=counts["p90"],
            p99=counts["p99"],
            cpu=cpu / counts["requests"] * 100_000,
            traffic=report.total(),
        )

    def _counts(self, client, argv, report, seconds):
        name = f"wrk-{client.name}"
        popen = self._starter.start(client, name, argv, report, stdout=subprocess.PIPE)
        try:
            out, _ = popen.communicate(timeout=seconds + settings.RUN_SLACK)
        except subprocess.TimeoutExpired:
            self._lab.fail(popen, f"does not end {settings.RUN_SLACK:.0f} s after its time")
        finally:
            self._lab.stop(popen)
        lines = [line[5:] for line in out.decode().splitlines() if line.startswith("json ")]
        if popen.returncode != 0 or len(lines) != 1:
            self._lab.fail(popen, f"ended with {popen.returncode} and printed {out.decode()[-400:]!r}")
        return json.loads(lines[0])

    def _cpu(self, chain):
        """wrk itself is among our finished children."""
        finished = resource.getrusage(resource.RUSAGE_CHILDREN)
        brokers = self._lab.brokers() if chain.variant.by_ring else []
        return finished.ru_utime + finished.ru_stime + procfs.cpu_seconds(*chain.pids(), *brokers)
