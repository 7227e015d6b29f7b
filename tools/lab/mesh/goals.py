"""What is to be reached, and whether it was."""

from dataclasses import dataclass, field

from .compare import BETTER, OPEN, SAME, WORSE, compare
from .figures import ALL, CPU, P50, P90, P99, PATH_CPU, RATE, compared
from .plan import BY_NAME

CAPTURE, SERVICES, RINGS, IPTABLES, AGAIN, BYPASS, NONE = (
    "capture",
    "capture+services",
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
#: An interval may reach so far beyond a goal that the goal still counts as reached, and not as open.
MARGIN = 1.05


@dataclass
class Verdict:
    goal: str
    #: One a comparison: what was compared, and what came out.
    reached: list = field(default_factory=list)
    missed: list = field(default_factory=list)
    #: The estimate is good, and the rounds are too few or too different to be sure.
    open: list = field(default_factory=list)

    @property
    def word(self):
        if self.missed:
            return "missed"
        if self.open:
            return "open"
        return "reached" if self.reached else "not measured"

    def judge(self, good, sure, text):
        (self.missed if not good else self.reached if sure else self.open).append(text)


def verdicts(results, plan):
    return [
        never_slower(results, plan),
        ahead(results, plan),
        steering(results, plan),
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
            sure = each.word == BETTER or within(figure, each, MARGIN)
            verdict.judge(each.word != WORSE, sure, told(cell, figure, each))
    return verdict


def ahead(results, plan):
    """Less CPU, or more requests, everywhere; and quicker where each request meets the rules, nowhere slower."""
    verdict = Verdict(f"capture and Services at the socket ahead of iptables with {MANY:,} rules on the node")
    for cell, figure, each in pairs(results, plan, SERVICES, IPTABLES, (P50, P90, P99, CPU, RATE)):
        if cell.rules == MANY:
            ahead_in = figure in (CPU, RATE) or BY_NAME[cell.load].fresh
            good = each.word == BETTER or (each.word == OPEN and cost(figure, each.ratio, each.ratio) < 1)
            if not ahead_in:
                good = each.word != WORSE
            sure = each.word == BETTER or (not ahead_in and within(figure, each, MARGIN))
            verdict.judge(good, sure, told(cell, figure, each))
    return verdict


def steering(results, plan):
    """What is left of it where kube-proxy's rules stay."""
    verdict = Verdict(f"capture never slower than iptables, kube-proxy and its {MANY:,} rules staying")
    for cell, figure, each in pairs(results, plan, CAPTURE, IPTABLES, JUDGED):
        if cell.rules == MANY:
            sure = each.word == BETTER or within(figure, each, MARGIN)
            verdict.judge(each.word != WORSE, sure, told(cell, figure, each))
    return verdict


def rings(results, plan):
    most = 1 - RINGS_AT_MOST
    verdict = Verdict(
        f"p90 with capture and rings at least {most:.0%} below iptables at {RINGS_CONNECTIONS} connections"
    )
    for cell, figure, each in pairs(results, plan, RINGS, IPTABLES, (P90,)):
        # A connection of one request gets no ring.
        if cell.connections == RINGS_CONNECTIONS and not BY_NAME[cell.load].fresh:
            verdict.judge(each.ratio <= RINGS_AT_MOST, each.word == BETTER, told(cell, figure, each))
    return verdict


def near_none(results, plan):
    verdict = Verdict(f"bypass within {NEAR_NONE - 1:.0%} of no mesh")
    for cell, figure, each in pairs(results, plan, BYPASS, NONE, (P50, P90, PATH_CPU, RATE)):
        near = cost(figure, each.ratio, each.ratio) <= NEAR_NONE
        # Beyond by chance is open.
        verdict.judge(near or each.word == SAME, within(figure, each, NEAR_NONE * MARGIN), told(cell, figure, each))
    return verdict


def cost(figure, low, high):
    """The worse end of a ratio's interval, above 1 for who is slower."""
    return high if figure.better == "lower" else 1 / low


def within(figure, each, limit):
    return each.word != OPEN and cost(figure, each.low, each.high) <= limit


def told(cell, figure, each):
    interval = f" ({each.low - 1:+.1%} to {each.high - 1:+.1%})" if each.word != OPEN else f", {OPEN}"
    return f"{figure.title} {cell.name}: {each.ratio - 1:+.1%}{interval}"


def pairs(results, plan, own, other, figures):
    """(cell, figure, Comparison) wherever both were measured."""
    for cell in results.cells:
        ours, theirs = results.of(cell, own), results.of(cell, other)
        if ours and theirs:
            for figure in compared(cell, figures or ALL):
                values = figure.values(ours), figure.values(theirs)
                if each := compare(*values, figure.better, plan.confidence):
                    yield cell, figure, each
