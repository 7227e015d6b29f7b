"""The ways a program is started for a comparison."""

import os
from dataclasses import dataclass

from . import ring


@dataclass(frozen=True)
class Variant:
    """`core` pins to one core; `spin` is not None for Sidestep, and its --spin option."""

    name: str
    title: str
    core: int | None = None
    spin: str | None = None

    @property
    def by_ring(self):
        return self.spin is not None


#: Any core will do; the last of those we may use is the one with the fewest interrupts.
LAST_CORE = max(os.sched_getaffinity(0))

PLAIN = Variant("plain", "kernel")
PINNED = Variant("pinned", "kernel, one core", core=LAST_CORE)
SIDESTEP = Variant("sidestep", "Sidestep", spin="auto")
NO_SPIN = Variant("nospin", "Sidestep, no spin", spin="off")


def tuning():
    """SIDESTEP_* settings of the caller that Sidestep's runs take over; the rest is set here."""
    ours = ("SIDESTEP_BROKER", "SIDESTEP_REPORT", "SIDESTEP_SPIN")
    return {k: v for k, v in os.environ.items() if k.startswith("SIDESTEP_") and k not in ours}


class Starter:
    """Makes command lines and environments of variants, and keeps the report files."""

    def __init__(self, lab, places):
        self._lab, self._places = lab, places
        self._broker = f"@sidestep-lab-{os.getpid()}"
        self._count = 0

    def report(self):
        """A new, empty report file."""
        self._count += 1
        return ring.Report(self._lab.folder / f"report-{self._count}.jsonl")

    def command(self, variant, argv, report=None):
        """argv as this variant starts it."""
        argv = [str(word) for word in argv]
        if variant.core is not None:
            return [self._places.tool("taskset"), "-c", str(variant.core), *argv]
        if variant.by_ring:
            report = report or self.report()
            options = ["--spin", variant.spin, "--report", str(report.path)]
            return [self._places.built("sidestep"), "run", *options, "--", *argv]
        return argv

    def environment(self, variant):
        """Ours, without anything that would bring Sidestep into a plain run."""
        env = {k: v for k, v in os.environ.items() if not k.startswith("SIDESTEP") and k != "LD_PRELOAD"}
        if variant.by_ring:
            env |= tuning()
            env["SIDESTEP_BROKER"] = self._broker
        return env

    def start(self, variant, name, argv, report=None, **options):
        argv = self.command(variant, argv, report)
        return self._lab.start(name, argv, self.environment(variant), **options)
