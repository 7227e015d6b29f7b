"""`make bench`: every row of the speed table, against two kernel baselines."""

import argparse
import dataclasses
import fnmatch
import json
import sys

from . import machine, settings, table
from .errors import LabError
from .interleave import Progress, interleave
from .lab import Lab
from .places import Places
from .rows import ROWS
from .rows.base import Line
from .variant import PINNED, PLAIN, Starter

ABOUT = """\
Measures each row of the speed table: kernel TCP as the scheduler places the processes, kernel TCP with
both ends pinned to one core, and Sidestep as the scheduler places the processes, in turn. Prints medians,
the ratios taken round by round with their spread, and whether the row's target was reached.
Also writes bench.json. Figures are figures: a missed target is not a failure of the command.
"""


def main(argv=None):
    options = parse(argv)
    if options.list:
        print(
            table.text(
                ["row", "work", "target"], [[row.name, row.about, row.targets] for row in ROWS], left=3
            )
        )
        return 0
    plan = settings.BenchPlan.quick() if options.quick else settings.BenchPlan()
    if options.pairs:
        plan = dataclasses.replace(plan, pairs=options.pairs)
    places = Places(options.release, options.envoy, options.out, install="bench")
    try:
        with Lab() as lab:
            cells, troubles = measure(lab, places, plan, options)
            troubles += lab.said("sidestep") if troubles else []
    except KeyboardInterrupt as why:
        print(f"\nbench: stopped by {why or 'Ctrl-C'}; everything it started is stopped too", file=sys.stderr)
        return 130
    except LabError as why:
        print(f"bench: {why}", file=sys.stderr)
        return 1
    lines = [(row, line) for row, cell in cells for line in lines_of(row, cell)]
    result = as_json(plan, places, lines, troubles)
    folder = places.out / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bench.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1) if options.json else as_text(plan, lines))
    for trouble in troubles:
        print(f"bench: FAILED: {trouble}", file=sys.stderr)
    return 1 if troubles else 0


def parse(argv):
    parser = argparse.ArgumentParser(prog="tools/bench", description=ABOUT)
    parser.add_argument(
        "rows", nargs="*", metavar="ROW", help="names or patterns such as 'nginx-*' (default: all)"
    )
    parser.add_argument("--list", action="store_true", help="print the rows and their targets")
    parser.add_argument(
        "--pairs", type=int, metavar="N", help=f"rounds through all variants ({settings.BenchPlan.pairs})"
    )
    parser.add_argument(
        "--quick", action="store_true", help="one short round of everything: does it work at all?"
    )
    parser.add_argument(
        "--plain-only", action="store_true", help="only the kernel's baselines, without Sidestep"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--release", metavar="DIR", help="where sidestep was built (target/release)")
    parser.add_argument("--envoy", metavar="FILE", help="the Envoy binary (default: the one in target/venv)")
    parser.add_argument("--out", metavar="DIR", help="bench/bench.json goes here (target)")
    options = parser.parse_args(argv)
    wanted = [name for word in options.rows for name in word.replace(",", " ").split()]
    options.chosen = [
        row for row in ROWS if not wanted or any(fnmatch.fnmatch(row.name, name) for name in wanted)
    ]
    unknown = [name for name in wanted if not any(fnmatch.fnmatch(row.name, name) for row in ROWS)]
    if unknown:
        parser.error(f"no such row: {', '.join(unknown)}; --list shows them")
    if options.pairs is not None and options.pairs < 1:
        parser.error("--pairs must be 1 or more")
    return options


def measure(lab, places, plan, options):
    """(row, cell) pairs with their samples, and what went wrong. One row's failure does not lose the others."""
    starter = Starter(lab, places)
    cells, troubles = [], []
    for row_class in options.chosen:
        variants = tuple(v for v in row_class.variants if not (options.plain_only and v.by_ring))
        try:
            with lab.scope():
                row = row_class(lab, places, starter, plan, variants)
                for cell in measure_row(row, variants):
                    cells.append((row, cell))
                    troubles += without_ring(row, cell, variants)
        except LabError as why:
            troubles.append(f"{row_class.name}: {why}")
    return cells, troubles


def measure_row(row, variants):
    todo = row.cells()
    progress = Progress(len(todo) * row.rounds() * len(variants))
    progress.say(f"{row.name}: {row.about}")
    for cell in todo:
        with cell.around():
            step = lambda variant: progress.step(cell.title, variant.title)
            cell.samples = interleave(variants, row.rounds(), cell.measure, step)
        yield cell
    progress.end()


def without_ring(row, cell, variants):
    """Sidestep's figures mean nothing if all went by kernel."""
    dry = [v for v in variants if v.by_ring and row.needs_ring and not cell.traffic(v).ring_bytes]
    return [
        f"{row.name}: {cell.title}: {v.title}: nothing went by ring; reasons: {cell.traffic(v).reasons}"
        for v in dry
    ]


def lines_of(row, cell):
    by_ring = [variant for variant in row.measured if variant.by_ring] or [None]
    return [Line(cell, metric, variant) for metric in cell.metrics for variant in by_ring]


def verdict(row, line):
    if line.variant is None:
        return ""
    if row.needs_ring and not line.cell.traffic(line.variant).ring_bytes:
        return "NO RING"
    if line.goal is None:
        return "-"
    return "reached" if line.goal.reached(line) else "missed"


def as_text(plan, lines):
    if not lines:
        return "nothing was measured"
    rows = []
    for row, line in lines:
        plain, pinned = line.versus(PLAIN), line.versus(PINNED)
        figures = [table.number(line.median(variant)) for variant in (PLAIN, PINNED, line.variant)]
        ratios = [table.times(plain), table.spread(plain), table.times(pinned), table.spread(pinned)]
        mode = "spin off" if line.variant and line.variant.spin == "off" else ""
        goal = line.goal.text if line.goal else ""
        rows.append([line.cell.title, line.metric.title, mode, *figures, *ratios, goal, verdict(row, line)])
    head = ["work", "figure", "", "kernel", "one core", "Sidestep"]
    head += ["x kernel", "(min-max)", "x one core", "(min-max)", "target", ""]
    notes = [
        f"Medians of {plan.pairs} interleaved rounds. 'x kernel' and 'x one core': above 1 Sidestep",
        "is ahead, for rates and for times.",
    ]
    limits = [
        limit for _, line in lines if has_limit(line.cell) for limit in line.cell.values(PLAIN, "limit_us")
    ]
    if limits:
        notes.append(
            "Spin limit (64 bytes to and fro between two cores, no transport at all): "
            f"{min(limits):.2f}-{max(limits):.2f} us."
        )
    return table.text(head, rows, left=3) + "\n\n" + "\n".join(notes)


def has_limit(cell):
    return "limit_us" in cell.samples[PLAIN.name][0].values


def as_json(plan, places, lines, troubles):
    def line_json(row, line):
        ratios = {base.name: line.versus(base) for base in (PLAIN, PINNED)}
        return {
            "row": row.name,
            "work": line.cell.title,
            "figure": line.metric.title,
            "better": line.metric.better,
            "variant": line.variant.name if line.variant else None,
            "median": {name: line.median(v) for name, v in named(row)},
            "times_better_than": {name: dataclasses.asdict(r) for name, r in ratios.items() if r},
            "target": line.goal.text if line.goal else None,
            "verdict": verdict(row, line),
            "by_ring": dataclasses.asdict(line.cell.traffic(line.variant)) if line.variant else None,
            "runs": {name: [sample.values for sample in line.cell.samples[name]] for name, _ in named(row)},
        }

    return {
        "machine": machine.describe(places),
        "plan": dataclasses.asdict(plan),
        "lines": [line_json(row, line) for row, line in lines],
        "troubles": troubles,
    }


def named(row):
    return [(variant.name, variant) for variant in row.measured]
