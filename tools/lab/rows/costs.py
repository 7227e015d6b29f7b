"""What Sidestep costs where it does nothing: one end only, and programs that open no TCP connection at all.

CPU seconds are the figure to trust on a machine that does other work too; wall time is shown beside them.
"""

import resource
import subprocess
import time

from .. import settings
from ..ring import Traffic
from ..services import Chain
from ..variant import PLAIN, SIDESTEP
from ..wrk import Wrk
from .base import Cell, Metric, Row, Sample, at_least

TARGET = "under 3 % dearer"
GOALS = {"sidestep": at_least(1 / 1.03, "under +3 %")}
#: A file that keeps the compiler busy for half a second, as those of a larger program do.
FUNCTIONS = 60
FUNCTION = """
int f{n}(int *a, int n)
{{
    int sum = {n};
    for (int i = 0; i < n; i++) {{
        switch (a[i] % 7) {{
        case 0: sum += a[i] * {n}; break;
        case 1: sum ^= a[i] << (i & 15); break;
        case 2: for (int j = i; j < n; j++) sum += a[j] / (j + 1); break;
        default: a[i] = sum - i;
        }}
    }}
    return n > {n} ? f{before}(a, n - 1) + sum : sum;
}}
"""


def source():
    first = "int f0(int *a, int n) { return a[0] + n; }\n"
    return first + "".join(FUNCTION.format(n=n, before=n - 1) for n in range(1, FUNCTIONS + 1))


class CostRow(Row):
    """Plain and under `sidestep run`, more often than other rows: a difference of 3 % is looked for."""

    targets = TARGET
    variants = (PLAIN, SIDESTEP)
    needs_ring = False
    metrics = (
        Metric("cpu_s", "CPU s", "lower", GOALS),
        Metric("wall_s", "wall s", "lower"),
    )

    def rounds(self):
        return self.plan.pairs * self.plan.cost_rounds_a_pair

    def cells(self):
        return [Cell(self.about, self.metrics, self.measure)]

    def argv(self):
        raise NotImplementedError

    def measure(self, variant):
        begin, before = time.monotonic(), _cpu()
        popen = self.starter.start(variant, f"{self.name}-{variant.name}", self.argv(), stdout=subprocess.DEVNULL)
        try:
            code = popen.wait(60 + settings.RUN_SLACK)
        except subprocess.TimeoutExpired:
            self.lab.fail(popen, "does not end")
        finally:
            wall, cpu = time.monotonic() - begin, _cpu() - before
            self.lab.stop(popen)
        if code not in self.good:
            self.lab.fail(popen, f"ended with {code}")
        return Sample({"cpu_s": cpu, "wall_s": wall})

    good = (0,)


def _cpu():
    """Of our finished children and theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class IdleCompile(CostRow):
    """`sidestep run` itself, and three processes a compilation: driver, compiler, assembler."""

    name = "idle-compile"
    about = "gcc -O2, a C file of 60 functions"

    def prepare(self):
        self.file = self.lab.folder / "compile.c"
        self.file.write_text(source())

    def argv(self):
        return [self.places.tool("gcc"), "-O2", "-c", self.file, "-o", self.lab.folder / "compile.o"]


class IdleStart(CostRow):
    """No target: a preloaded library must be mapped and bound in every process. It shows what one costs."""

    name = "idle-start"
    about = "a shell that starts /bin/true 300 times"
    targets = "-"
    metrics = (Metric("cpu_s", "CPU s", "lower"), Metric("wall_s", "wall s", "lower"))

    def argv(self):
        return ["/bin/sh", "-c", "n=0; while [ $n -lt 300 ]; do /bin/true; n=$((n + 1)); done"]


class IdleFind(CostRow):
    name = "idle-find"
    about = "find /usr -xdev"
    good = (0, 1)  # 1: a file went away meanwhile

    def argv(self):
        return [self.places.tool("find"), "/usr", "-xdev", "-newermt", "2000-01-01"]


class IdlePipe(CostRow):
    name = "idle-pipe"
    about = "one-byte reads from a pipe, 10 million"

    def argv(self):
        return [self.places.built("sidestep-bench"), "onebyte", "--reads", str(self.plan.one_byte_reads)]


class IdleWrk(Row):
    """Only one end has the library: it offers its connections, and nobody answers."""

    name = "idle-wrk"
    about = "wrk -> nginx, 16 connections, one end without the library"
    targets = TARGET
    variants = (PLAIN, SIDESTEP)
    needs_ring = False
    metrics = (
        Metric("cpu", "CPU s/100k req", "lower", GOALS),
        Metric("rate", "requests/s", "higher", GOALS),
    )

    def prepare(self):
        self.wrk = Wrk(self.lab, self.places, self.starter)
        self.chains = {
            variant.name: Chain(self.lab, self.places, self.starter, variant, with_envoy=False)
            for variant in self.measured
        }

    def rounds(self):
        return self.plan.pairs * self.plan.cost_rounds_a_pair

    def cells(self):
        return [
            Cell("wrk -> nginx with it", self.metrics, lambda v: self.measure(self.chains[v.name], PLAIN)),
            Cell("wrk with it -> nginx", self.metrics, lambda v: self.measure(self.chains[PLAIN.name], v)),
        ]

    def measure(self, chain, client):
        run = self.wrk.run(chain, "direct", 16, self.plan.wrk_seconds, client)
        return Sample({"cpu": run.cpu, "rate": run.rate}, Traffic())
