"""What is to be reached, and whether it was."""

from dataclasses import dataclass, field

from .compare import BETTER, OPEN, WORSE, compare
from .figures import CPU, P50, P90, RATE, compared

CAPTURE, RINGS, IPTABLES, AGAIN, BYPASS, NONE = (
    "capture",
    "capture+rings",
    "iptables",
    "iptables-again",
    "bypass",
    "none",
)
JUDGED = (P50, P90, CPU, RATE)
MANY = 100_000
RINGS_CONNECTIONS, RINGS_AT_MOST = 64, 0.70
NEAR_NONE = 1.05


@dataclass
class Verdict:
    goal: str
    #: One a comparison: what was compared, and what came out.
    reached: list = field(default_factory=list)
    missed: list = field(default_factory=list)
    #: Of too few rounds.
    open: list = field(default_factory=list)

    @property
    def word(self):
        if self.missed:
            return "missed"
        if self.open:
            return "open"
        return "reached" if self.reached else "not measured"

    def judge(self, good, text):
        (self.reached if good else self.missed).append(text)


def verdicts(results, plan):
    return [
        never_slower(results, plan),
        ahead(results, plan),
        rings(results, plan),
        near_none(results, plan),
    ]


def control(results, plan):
    """How many comparisons of iptables with itself found a difference, and of how many."""
    words = [each.word for *_, each in pairs(results, plan, AGAIN, IPTABLES, None)]
    return sum(word in (BETTER, WORSE) for word in words), sum(word != OPEN for word in words)


def never_slower(results, plan):
    verdict = Verdict("capture never slower than iptables, without rules on the node")
    for cell, figure, each in pairs(results, plan, CAPTURE, IPTABLES, JUDGED):
        if not cell.rules:
            decide(verdict, cell, figure, each, each.word != WORSE)
    return verdict


def ahead(results, plan):
    verdict = Verdict(f"capture ahead of iptables with {MANY:,} rules on the node")
    for cell, figure, each in pairs(results, plan, CAPTURE, IPTABLES, (P90,)):
        if cell.rules == MANY:
            decide(verdict, cell, figure, each, each.word == BETTER)
    return verdict


def rings(results, plan):
    most = 1 - RINGS_AT_MOST
    verdict = Verdict(
        f"p90 with capture and rings at least {most:.0%} below iptables at {RINGS_CONNECTIONS} connections"
    )
    for cell, figure, each in pairs(results, plan, RINGS, IPTABLES, (P90,)):
        if cell.connections == RINGS_CONNECTIONS:
            decide(verdict, cell, figure, each, each.ratio <= RINGS_AT_MOST)
    return verdict


def near_none(results, plan):
    verdict = Verdict(f"bypass within {NEAR_NONE - 1:.0%} of no mesh")
    for cell, figure, each in pairs(results, plan, BYPASS, NONE, JUDGED):
        near = each.ratio <= NEAR_NONE if figure.better == "lower" else each.ratio >= 1 / NEAR_NONE
        decide(verdict, cell, figure, each, near)
    return verdict


def decide(verdict, cell, figure, each, good):
    text = f"{figure.title} {cell.name}: {each.ratio - 1:+.1%}"
    if each.word == OPEN:
        verdict.open.append(text)
    else:
        verdict.judge(good, text)


def pairs(results, plan, own, other, figures):
    """(cell, figure, Comparison) wherever both were measured."""
    for cell in results.cells:
        ours, theirs = results.of(cell, own), results.of(cell, other)
        if ours and theirs:
            for figure in compared(cell):
                if figures is None or figure in figures:
                    values = figure.values(ours), figure.values(theirs)
                    if each := compare(*values, figure.better, plan.confidence):
                        yield cell, figure, each
