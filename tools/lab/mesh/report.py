"""The tables, as Markdown and as JSON."""

import dataclasses
import itertools
from statistics import fmean, median

from ..table import number
from . import goals
from .compare import OPEN
from .contestants import ALL
from .figures import ALL as FIGURES
from .figures import CPU, HIGHEST, LATENCIES, RATE
from .plan import BY_NAME, Cell, Plan
from .proof import Proof
from .rounds import Results

TITLES = {kind.name: kind.title for kind in ALL}
FAILURE = ("who", "cell", "round", "why")
PROGRAMS = ("client-app", "client-proxy", "server-proxy", "server-app")

#: What is shown; all other pairs are in the JSON.
AGAINST = {
    goals.IPTABLES: [kind.name for kind in ALL if kind.name != goals.IPTABLES],
    goals.CAPTURE: [goals.RINGS, "capture+splice", goals.SERVICES],
    goals.NONE: [goals.BYPASS],
}

TURNS_HEAD = (
    "Rules | load | connections | who | requests/s | p50 | p90 | p99 | p99.9 "
    "| CPU a request | load, sidecar, sidecar, nginx | in the kernel | processors: programs | highest | machine"
)
PROOF_HEAD = (
    "Rules | who | requests | client's sidecar | server's sidecar | allowed | mTLS handshakes | bytes"
)


def markdown(results, plan, machine):
    parts = [about(plan, machine), "### The way of the requests", PROOF, proofs(results)]
    parts += ["### Latency and CPU", TURNS, turns(results)]
    for base, names in AGAINST.items():
        if table := against(results, plan, base, names):
            title = f"### Against {TITLES[base]}"
            parts += [title, VERDICTS.format(base=TITLES[base], confidence=plan.confidence), table]
    if table := shared_out(results, plan):
        parts += ["### Whose part it is, with rules on the node", SHARED_OUT, table]
    parts += ["### Control", controlled(results, plan), "### Goals", judged(results, plan)]
    if results.failures:
        parts += ["### Turns that failed", "\n".join(f"- {line}" for line in failed(results.failures))]
    if results.absent:
        parts += ["### Not run", "\n".join(f"- {line}" for line in left_out(results.absent))]
    return "\n\n".join(parts) + "\n"


PROOF = (
    "What the sidecars counted of the same requests before the measurement; a contestant whose requests took another "
    "way does not take part. Bytes by ring are the load generator's, spliced ones those of all sockets of a pod."
)
TURNS = (
    "Medians of all rounds. Latencies and CPU in microseconds, of CPU how much is each program's, and the mean of how much "
    "of that is the kernel's (system calls and interrupts; the rest is the program itself, such as Envoy's TLS and HTTP); "
    "processors in use by the mesh's programs on the average and in their busiest piece, and by the whole machine with all "
    "that runs on it. *Late* are requests that were not answered in time or failed, of all rounds."
)
VERDICTS = (
    "How much more or less than {base}, with the interval of {confidence:.0%} confidence. **Better** and **worse** where "
    "the interval leaves no difference out; the others are no difference that these rounds could show."
)


def about(plan, machine):
    versions = ", ".join(f"{name} {version}" for name, version in machine["programs"].items() if version)
    rounds = f"{plan.rounds} interleaved rounds of {plan.seconds:g} s"
    if plan.main_rounds != plan.rounds:
        rounds += f" ({plan.main_rounds} where connections are not {plan.full})"
    most = f"{plan.requests:,} requests" if plan.requests else "any number of requests"
    return (
        f"{machine['cores']} processors ({machine['cpu']}), Linux {machine['kernel']}, {versions}; {rounds}, order by "
        f"chance (seed {plan.seed}). A connection carries {most}. The client's sidecar dials the {UPSTREAM[plan.upstream]}. "
        f"The node's rules: {WALK[plan.walk]}. Load average {machine['load_before'][0]:.1f} before and "
        f"{machine['load'][0]:.1f} after the measurement."
    )


UPSTREAM = {"pod": "pod", "vip": "Service's address"}
WALK = {
    "services": "kube-proxy's, of other Services; none where Sidestep balances Services",
    "connection": "a firewall's, which the first packet of each connection looks through",
    "packet": "a firewall's, which every packet looks through",
}


def grid(head, rows, words=2):
    """A Markdown table; the first columns are words."""
    columns = head.count("|") + 1
    rule = "|".join(["---"] * words + ["---:"] * (columns - words))
    return "\n".join([f"| {head} |", f"|{rule}|", *(f"| {' | '.join(row)} |" for row in rows)])


def proofs(results):
    rows = []
    for (count, name), proof in results.proofs.items():
        kinds = ("client's sidecar", "server's sidecar", "allowed", "handshakes")
        counts = [f"{proof.counts[kind]:,}" if proof.counts else "-" for kind in kinds]
        moved = "; ".join(f"{number:,} {way}" for way, number in proof.moved.items())
        rows.append([f"{count:,}", TITLES[name], f"{proof.requests:,}", *counts, moved or "-"])
    return grid(PROOF_HEAD, rows)


def turns(results):
    rows = []
    for (cell, name), taken in results.turns.items():
        each = [turn for turn in taken if turn]
        if not each:
            continue
        late = sum(turn["unanswered"] + turn["failed"] for turn in each)
        def of(figure):
            return number(figure.median(each))
        rate = of(RATE) + (f" ({late:,} late)" if late else "")
        used = [number(median(turn["cpu"][what] for turn in each)) for what in ("programs", "machine")]
        # Of a single turn the kernel's share is a few samples.
        spent = [shares(each, "request_us", median), shares(each, "kernel_us", fmean)]
        row = [*place(cell), TITLES[name], rate, *map(of, LATENCIES), of(CPU), *spent]
        rows.append([*row, used[0], of(HIGHEST), used[1]])
    return grid(TURNS_HEAD, rows, words=4)


def place(cell):
    return f"{cell.rules:,}", BY_NAME[cell.load].title, str(cell.connections)


def shares(turns_of_one, kind, middle):
    """Of each program that is there."""
    names = [name for name in PROGRAMS if name in turns_of_one[0]["cpu"][kind]]
    return " + ".join(number(middle(turn["cpu"][kind][name] for turn in turns_of_one)) for name in names)


def against(results, plan, base, names):
    head = "Rules | load | connections | who | " + " | ".join(figure.title for figure in FIGURES)
    found = {
        (cell, name, figure): each
        for name in names
        for cell, figure, each in goals.pairs(results, plan, name, base, None)
    }
    rows = [
        [*place(cell), TITLES[name], *(told(found.get((cell, name, figure))) for figure in FIGURES)]
        for cell, name in results.turns
        if any((cell, name, figure) in found for figure in FIGURES)
    ]
    return grid(head, rows, words=4) if rows else ""


def shared_out(results, plan):
    """The difference between iptables beside a kube-proxy, and capture without one, in its two parts."""
    head = "Rules | load | connections | part | " + " | ".join(figure.title for figure in FIGURES)
    found = {
        (cell, part, figure): each
        for part, (own, other) in SHARES_OF.items()
        for cell, figure, each in goals.pairs(results, plan, own, other, None)
    }
    cells = [cell for cell in results.cells if cell.rules and any((cell, BOTH, figure) in found for figure in FIGURES)]
    rows = [
        [*place(cell), part, *(told(found.get((cell, part, figure))) for figure in FIGURES)]
        for cell in cells
        for part in SHARES_OF
    ]
    return grid(head, rows, words=4) if rows else ""


BOTH = "both"
SHARES_OF = {
    "steering": (goals.CAPTURE, goals.IPTABLES),
    "no rules of kube-proxy": (goals.SERVICES, goals.CAPTURE),
    BOTH: (goals.SERVICES, goals.IPTABLES),
}
SHARED_OUT = (
    "*Steering* is capture against iptables, both beside a kube-proxy; *no rules of kube-proxy* is capture with Services "
    "at the socket against capture alone; *both* is capture with Services at the socket against iptables."
)


def told(comparison):
    if comparison is None:
        return "-"
    change = f"{comparison.ratio - 1:+.1%}"
    if comparison.word == OPEN:
        return f"{change}, {OPEN}"
    words = f"{change} ({comparison.low - 1:+.1%} to {comparison.high - 1:+.1%})"
    return f"**{comparison.word}** {words}" if comparison.word in ("better", "worse") else words


def controlled(results, plan):
    wrong, count = goals.control(results, plan)
    if not count:
        return "iptables was not compared with itself, or in too few rounds."
    share = 1 - plan.confidence
    return (
        f"iptables against itself: {wrong} of {count} comparisons say that there is a difference, which is wrong. At "
        f"{plan.confidence:.0%} confidence {share:.0%} of them are to be expected, {count * share:.1f}."
    )


def judged(results, plan):
    rows = []
    for verdict in goals.verdicts(results, plan):
        total = len(verdict.missed) + len(verdict.reached) + len(verdict.open)
        count = f"{len(verdict.reached)} of {total} comparisons"
        why = f": missed {'; '.join(verdict.missed)}" if verdict.missed else ""
        unsure = f"; open {'; '.join(verdict.open)}" if verdict.open else ""
        rows.append(f"- **{verdict.goal}: {verdict.word}** ({count}){why}{unsure}")
    return "\n".join(rows)


def left_out(absent):
    for (name, count), why in absent.items():
        where = f" with {count:,} rules" if count is not None else ""
        yield f"{TITLES.get(name, name)}{where}: {why.splitlines()[0]}"


def failed(failures):
    for name, cell, round_number, why in failures:
        words = " ".join(why.split())
        yield f"{TITLES.get(name, name)}, {cell}, round {round_number}: {words}"


def as_json(results, plan, machine):
    return {
        "machine": machine,
        "plan": dataclasses.asdict(plan),
        "proofs": [
            {"rules": count, "who": name} | dataclasses.asdict(proof)
            for (count, name), proof in results.proofs.items()
        ],
        "cells": [
            dataclasses.asdict(cell) | {"who": name, "turns": each} for (cell, name), each in results.turns.items()
        ],
        "comparisons": list(comparisons(results, plan)),
        "goals": [
            dataclasses.asdict(verdict) | {"verdict": verdict.word} for verdict in goals.verdicts(results, plan)
        ],
        "control": dict(zip(("wrong", "count"), goals.control(results, plan))),
        "failures": [dict(zip(FAILURE, each)) for each in results.failures],
        "absent": [{"who": name, "rules": count, "why": why} for (name, count), why in results.absent.items()],
    }


def comparisons(results, plan):
    """Of each pair."""
    names = list(dict.fromkeys(name for _, name in results.turns))
    for own, other in itertools.permutations(names, 2):
        for cell, figure, each in goals.pairs(results, plan, own, other, None):
            what = {"who": own, "against": other, "cell": cell.name, "figure": figure.key}
            yield what | dataclasses.asdict(each)


def from_json(made):
    """What `as_json` has made of results, plan and machine."""
    results = Results()
    for each in made["cells"]:
        cell = Cell(each["rules"], each["load"], each["connections"])
        results.turns[cell, each["who"]] = each["turns"]
    for each in made["proofs"]:
        results.proofs[each["rules"], each["who"]] = Proof(each["requests"], each["counts"], each["moved"])
    results.failures = [tuple(each[name] for name in FAILURE) for each in made["failures"]]
    for each in made["absent"]:
        results.absent[each["who"], each["rules"]] = each["why"]
    lists = {name: tuple(value) if isinstance(value, list) else value for name, value in made["plan"].items()}
    return results, Plan(**lists), made["machine"]
