"""What is to be reached, and whether it was."""

from dataclasses import dataclass, field

from .figures import BY_KEY, Spread

OWN, LIMIT = "sidestep", "direct"
NFTABLES = ("nftables", "kube-proxy-nftables")
IPTABLES = ("iptables-nft", "iptables-legacy", "kube-proxy-iptables")
#: Of each kind of traffic what its user feels and what it costs the node: figures that other programs on the machine
#: hardly touch. Rates and high percentiles count every slice of time that somebody else takes.
JUDGED = tuple(BY_KEY[key] for key in ("short_p50", "connect_p50", "short_cpu", "keep_p50", "keep_cpu"))

NEAR_DIRECT = 1.03
AHEAD_FROM = 1_000
CHANGE_LIMIT_S = 0.010


@dataclass
class Verdict:
    goal: str
    #: One a comparison: what was compared, and what came out.
    reached: list = field(default_factory=list)
    missed: list = field(default_factory=list)

    @property
    def word(self):
        if self.missed:
            return "missed"
        return "reached" if self.reached else "not measured"

    def judge(self, good, text):
        (self.reached if good else self.missed).append(text)


def verdicts(sizes):
    return [near_direct(sizes), *ahead_of_iptables(sizes), not_behind_nftables(sizes), quick_change(sizes)]


def near_direct(sizes):
    verdict = Verdict(f"within {NEAR_DIRECT - 1:.0%} of direct at every size")
    for size, results, base in compared(sizes, (LIMIT,)):
        judge_costs(verdict, size, results, base, NEAR_DIRECT)
    return verdict


def ahead_of_iptables(sizes):
    ahead = Verdict(f"ahead of iptables from {AHEAD_FROM:,} Services on")
    behind = Verdict(f"never behind iptables below {AHEAD_FROM:,} Services")
    for size, results, base in compared(sizes, IPTABLES):
        judge_costs(ahead if size >= AHEAD_FROM else behind, size, results, base, 1.0)
    return [ahead, behind]


def not_behind_nftables(sizes):
    verdict = Verdict("never slower than nftables")
    for size, results, base in compared(sizes, NFTABLES):
        judge_costs(verdict, size, results, base, 1.0)
    return verdict


def quick_change(sizes):
    largest = max(sizes, default=0)
    verdict = Verdict(f"one endpoint changed in under {CHANGE_LIMIT_S * 1e3:.0f} ms at {largest:,} Services")
    results = sizes.get(largest, {}).get(OWN)
    if results and results.changes:
        spread = Spread.of(change.seen for change in results.changes)
        verdict.judge(spread.median < CHANGE_LIMIT_S, f"{spread.median * 1e3:.1f} ms")
    return verdict


def compared(sizes, others):
    """(size, Sidestep's results, (name, results) of another) of all that were measured together."""
    for size, by_name in sizes.items():
        for other in others:
            if OWN in by_name and other in by_name:
                yield size, by_name[OWN], (other, by_name[other])


def judge_costs(verdict, size, results, base, limit):
    name, others = base
    for figure in JUDGED:
        cost = figure.cost(results, others)
        if cost:
            text = f"{figure.title} at {size:,}: {cost.median - 1:+.1%} of {name}"
            verdict.judge(cost.median <= limit, text)
