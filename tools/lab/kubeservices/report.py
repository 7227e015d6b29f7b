"""The tables, as Markdown and as JSON."""

import dataclasses

from ..table import number
from . import figures
from .contestants import ALL
from .figures import Spread
from .goals import LIMIT, verdicts
from .plan import Plan
from .programs import Program
from .trial import Change, Results

TITLES = {kind.name: kind.title for kind in ALL}
MILLISECONDS = 1e3

DIAL_HEAD = (
    "Services | who | connections/s | cost of direct | connect() | connection | request "
    "| CPU: connection | CPU: request"
)
LOAD_HEAD = "Services | who | all Services loaded | command of a change | change in effect"
PLACE_HEAD = "Services | who | first | middle | last"


def markdown(sizes, absent, plan, machine):
    parts = [
        about(plan, machine),
        "### Connections and requests",
        "Times in microseconds: p50 / p90 / p99, each the median of all rounds. *Cost of direct*: how many times the p50 "
        "of a connection, and of a request on a kept one, is that of direct in the same round; median (quartiles).",
        dialled(sizes),
        "### Loading and changing",
        "Times in milliseconds: median (quartiles). Where loading takes longer than the limit, the Services that are "
        "not dialled are there without their endpoints, which a connection to another Service does not notice; a change "
        "is the quicker for it.",
        loaded(sizes, plan),
    ]
    if places := by_place(sizes):
        parts += [
            "### Place in the list",
            "connect() p50 in microseconds, by the place of the Service.",
            places,
        ]
    if programs := accounts(sizes):
        parts += ["### Inside Sidestep", ACCOUNT, programs]
    parts += ["### Goals", judged(sizes)]
    if absent:
        parts += ["### Not measured", "\n".join(f"- {line}" for line in left_out(absent))]
    return "\n\n".join(parts) + "\n"


def about(plan, machine):
    versions = ", ".join(f"{name} {version}" for name, version in machine["programs"].items() if version)
    return (
        f"{machine['cores']} processors ({machine['cpu']}), Linux {machine['kernel']}, {versions}; {plan.rounds} "
        f"interleaved rounds, {plan.endpoints} endpoints a Service. Load average {machine['load_before'][0]:.1f} before and "
        f"{machine['load'][0]:.1f} after the measurement, which by itself makes about 1."
    )


def grid(head, rows):
    """A Markdown table; the first two columns are words."""
    columns = head.count("|") + 1
    rule = "|".join(["---:", "---", *["---:"] * (columns - 2)])
    return "\n".join([f"| {head} |", f"|{rule}|", *(f"| {' | '.join(row)} |" for row in rows)])


def every(sizes):
    for size, by_name in sizes.items():
        for name, results in by_name.items():
            yield size, name, results


def dialled(sizes):
    rows = []
    for size, name, results in every(sizes):
        def middle(figure):
            return number(figure.spread(results).median)
        rows.append(
            [
                f"{size:,}",
                TITLES[name],
                middle(figures.RATE),
                cost_of_direct(sizes[size], name),
                *(" / ".join(map(middle, each)) for each in (figures.CONNECT, figures.SHORT, figures.KEEP)),
                middle(figures.SHORT_CPU),
                middle(figures.KEEP_CPU),
            ]
        )
    return grid(DIAL_HEAD, rows)


def cost_of_direct(by_name, name):
    base = by_name.get(LIMIT)
    if base is None or name == LIMIT:
        return "-"
    costs = [figure.cost(by_name[name], base) for figure in (figures.SHORT[0], figures.KEEP[0])]
    return ", ".join(f"{cost.median:.3f} ({cost.low:.3f}-{cost.high:.3f})" for cost in costs)


def loaded(sizes, plan):
    rows = []
    for size, name, results in every(sizes):
        if results.changes:
            least = "at least " if results.hollow else ""
            load = plan.load_limit if results.hollow else results.load
            times = [
                Spread.of(getattr(change, each) for change in results.changes) for each in ("applied", "seen")
            ]
            words = f"{'over ' if results.hollow else ''}{number(load * MILLISECONDS)}"
            rows.append([f"{size:,}", TITLES[name], words, *(least + milliseconds(time) for time in times)])
    return grid(LOAD_HEAD, rows)


def milliseconds(spread):
    middle, low, high = (number(each * MILLISECONDS) for each in (spread.median, spread.low, spread.high))
    return f"{middle} ({low}-{high})"


def by_place(sizes):
    """Of those that look through a list."""
    listed = {kind.name for kind in ALL if kind.has_positions}
    rows = []
    for size, name, results in every(sizes):
        if name in listed and size > 1:
            rows.append([f"{size:,}", TITLES[name], *(number(place) for place in place_medians(results))])
    return grid(PLACE_HEAD, rows) if rows else ""


def place_medians(results):
    answers = (results.first, results.short, results.last)
    return [
        Spread.of(figures.follow(one, figures.CONNECT[0].path) for one in each).median for each in answers
    ]


ACCOUNT = (
    "What its BPF programs did for a connection, by the kernel's account (`kernel.bpf_stats_enabled`, which costs some of "
    "the time that it shows). `getpeername4` runs in the pod's accept(), `sock_release` at both ends."
)
PROGRAM_HEAD = "Services | program | runs a connection | ns a run"


def accounts(sizes):
    rows = [
        [f"{size:,}", program.name, number(program.runs_a_connection), number(program.ns_a_run)]
        for size, _, results in every(sizes)
        for program in results.programs
    ]
    return grid(PROGRAM_HEAD, rows) if rows else ""


def judged(sizes):
    rows = []
    for verdict in verdicts(sizes):
        why = "; ".join(verdict.missed)
        total = len(verdict.missed) + len(verdict.reached)
        count = f"{len(verdict.reached)} of {total} comparisons"
        rows.append(f"- **{verdict.goal}: {verdict.word}** ({count}){': ' + why if why else ''}")
    return "\n".join(rows)


def left_out(absent):
    for (name, size), why in absent.items():
        where = f" at {size:,} Services" if size else ""
        yield f"{TITLES.get(name, name)}{where}: {why.splitlines()[0]}"


def as_json(sizes, absent, plan, machine):
    return {
        "machine": machine,
        "plan": dataclasses.asdict(plan),
        "sizes": [
            {
                "services": size,
                "results": {name: results_json(results, by_name) for name, results in by_name.items()},
            }
            for size, by_name in sizes.items()
        ],
        "goals": [dataclasses.asdict(verdict) | {"verdict": verdict.word} for verdict in verdicts(sizes)],
        "absent": [{"who": name, "services": size, "why": why} for (name, size), why in absent.items()],
    }


def results_json(results, by_name):
    base = by_name.get(LIMIT)
    return {
        "load_s": results.load,
        "hollow": results.hollow,
        "changes": [dataclasses.asdict(change) for change in results.changes],
        "programs": [dataclasses.asdict(program) for program in results.programs],
        "figures": {figure.key: figure_json(figure, results, base) for figure in figures.ALL},
        "rounds": {run: getattr(results, run) for run in ("short", "keep", "first", "last")},
    }


def figure_json(figure, results, base):
    cost = figure.cost(results, base) if base else None
    return {
        "title": figure.title,
        "unit": figure.unit,
        "better": figure.better,
        "spread": dataclasses.asdict(figure.spread(results)),
        "cost_of_direct": dataclasses.asdict(cost) if cost else None,
    }


def from_json(result):
    """What `as_json` has made of sizes, absent, plan and machine."""
    sizes = {
        size["services"]: {name: results_from(results) for name, results in size["results"].items()}
        for size in result["sizes"]
    }
    absent = {(each["who"], each["services"]): each["why"] for each in result["absent"]}
    return sizes, absent, Plan(**result["plan"]), result["machine"]


def results_from(made):
    return Results(
        load=made["load_s"],
        hollow=made["hollow"],
        changes=[Change(**change) for change in made["changes"]],
        programs=[Program(**program) for program in made["programs"]],
        **made["rounds"],
    )
