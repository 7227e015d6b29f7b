"""What a row of the benchmark is made of."""

import contextlib
from dataclasses import dataclass, field
from typing import Callable

from ..program import Programs
from ..ring import Traffic
from ..stats import factor, median
from ..variant import PINNED, PLAIN, SIDESTEP


@dataclass(frozen=True)
class Goal:
    """What must be reached, judged on a Line."""

    text: str
    reached: Callable


def at_least(times, text=None):
    """So many times better than the kernel as the scheduler places it."""

    def reached(line):
        ratio = line.versus(PLAIN)
        return ratio is not None and ratio.median >= times

    return Goal(text or f"{times}x", reached)


def at_most(bound, text):
    """An absolute figure, smaller is better."""
    return Goal(text, lambda line: line.median(line.variant) <= bound)


def all_of(count, text):
    """An absolute figure, larger is better."""
    return Goal(text, lambda line: line.median(line.variant) >= count)


def within(times, limit, text):
    """At most so many times another figure that the kernel's runs carry."""
    return Goal(
        text, lambda line: line.median(line.variant) <= times * median(line.cell.values(PLAIN, limit))
    )


@dataclass(frozen=True)
class Metric:
    """One figure of a cell. `goals` maps the name of a Sidestep variant to its Goal."""

    key: str
    title: str
    better: str
    goals: dict = field(default_factory=dict)


@dataclass
class Sample:
    """One run: figures by key, and what went by ring."""

    values: dict
    traffic: Traffic = field(default_factory=Traffic)


@dataclass
class Cell:
    """One piece of work, measured under all variants in turn."""

    title: str
    metrics: tuple
    measure: Callable  # variant -> Sample
    #: What goes on beside it, such as a background load.
    around: Callable = contextlib.nullcontext
    samples: dict = field(default_factory=dict)  # variant name -> one Sample a round

    def values(self, variant, key):
        return [sample.values[key] for sample in self.samples[variant.name]]

    def traffic(self, variant):
        total = Traffic()
        for sample in self.samples[variant.name]:
            total += sample.traffic
        return total


@dataclass(frozen=True)
class Line:
    """A metric of a cell under one Sidestep variant (None when only the kernel was measured)."""

    cell: Cell
    metric: Metric
    variant: object

    @property
    def goal(self):
        return self.metric.goals.get(self.variant.name) if self.variant else None

    def median(self, variant):
        measured = variant and variant.name in self.cell.samples
        return median(self.cell.values(variant, self.metric.key)) if measured else None

    def versus(self, base):
        """How many times better than a kernel variant; None when either was not measured."""
        if not self.variant or base.name not in self.cell.samples:
            return None
        values = [self.cell.values(variant, self.metric.key) for variant in (base, self.variant)]
        return factor(*values, self.metric.better)


class Row:
    """A scenario by name. Services started in the constructor run until the row is done."""

    name = about = targets = ""
    variants = (PLAIN, PINNED, SIDESTEP)
    #: Whether Sidestep's figures are worthless when nothing went by ring.
    needs_ring = True

    def __init__(self, lab, places, starter, plan, variants):
        self.lab, self.places, self.starter, self.plan = lab, places, starter, plan
        #: Those of the class's variants that are measured this time.
        self.measured = variants
        self.prepare()

    def prepare(self):
        """Starts what the row needs."""

    def cells(self):
        raise NotImplementedError

    def rounds(self):
        """How often each cell goes through all variants."""
        return self.plan.pairs

    def programs(self):
        return Programs(self.lab, self.places, self.starter)
