"""`make demo`: a service and its sidecar under load, on kernel TCP and under Sidestep."""

import argparse
import dataclasses
import json
import sys
from pathlib import Path

from . import bodies, machine, settings, svg, table
from .errors import LabError
from .interleave import Progress, interleave
from .lab import Lab
from .places import ROOT, Places
from .ring import Traffic
from .services import PATHS, Chain
from .stats import factor, median
from .variant import PLAIN, SIDESTEP, Starter
from .wrk import Wrk

#: name of the field in wrk.Run, title, what is better
METRICS = (
    ("rate", "requests/s", "higher"),
    ("p50", "p50, us", "lower"),
    ("p90", "p90, us", "lower"),
    ("p99", "p99, us", "lower"),
    ("cpu", "CPU s/100k req", "lower"),
)
TITLES = {"direct": "direct", "tcp_proxy": "Envoy tcp_proxy", "http": "Envoy HTTP"}

ABOUT = """\
Starts nginx (the service) and Envoy (its sidecar: HTTP router and tcp_proxy) on 127.0.0.1, once on
kernel TCP and once under `sidestep run`, loads both in turn with wrk, and prints one table.
Also writes demo.json and demo.svg. Everything that is started is stopped at the end.
"""


@dataclasses.dataclass
class Cell:
    """One path with one number of connections."""

    path: str
    connections: int
    runs: dict  # variant name -> list of wrk.Run

    def values(self, variant, metric):
        return [getattr(run, metric) for run in self.runs[variant]]

    def ratio(self, metric, better):
        if SIDESTEP.name not in self.runs:
            return None
        return factor(self.values("plain", metric), self.values("sidestep", metric), better)

    def traffic(self):
        """wrk's own end of the Sidestep runs."""
        total = Traffic()
        for run in self.runs.get(SIDESTEP.name, []):
            total += run.traffic
        return total


def main(argv=None):
    options = parse(argv)
    plan = settings.DemoPlan.quick() if options.quick else settings.DemoPlan()
    if options.pairs:
        plan = dataclasses.replace(plan, pairs=options.pairs)
    places = Places(options.release, options.envoy, options.out, install="demo")
    variants = [PLAIN] if options.plain_only else [PLAIN, SIDESTEP]
    try:
        with Lab() as lab:
            cells, totals = measure(lab, places, plan, variants)
            complaints = lab.said("sidestep")
    except KeyboardInterrupt as why:
        print(f"\ndemo: stopped by {why or 'Ctrl-C'}; everything it started is stopped too", file=sys.stderr)
        return 130
    except LabError as why:
        print(f"\ndemo: {why}", file=sys.stderr)
        return 1
    result = as_json(plan, cells, totals, places)
    folder = write(places.out / "demo", result)
    print(json.dumps(result, indent=1) if options.json else as_text(plan, cells, totals))
    print(f"picture and figures: {folder}/demo.svg {folder}/demo.json", file=sys.stderr)
    return verdict(cells, totals, variants, complaints)


def parse(argv):
    parser = argparse.ArgumentParser(prog="tools/demo", description=ABOUT)
    parser.add_argument(
        "--quick", action="store_true", help="one pair at 16 connections: does it work at all?"
    )
    parser.add_argument("--plain-only", action="store_true", help="only kernel TCP, without Sidestep")
    parser.add_argument(
        "--pairs", type=int, metavar="N", help=f"runs of each variant in a cell ({settings.DemoPlan.pairs})"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--release", metavar="DIR", help="where sidestep was built (target/release)")
    parser.add_argument("--envoy", metavar="FILE", help="the Envoy binary (default: the one in target/venv)")
    parser.add_argument("--out", metavar="DIR", help="demo/demo.json and demo/demo.svg go here (target)")
    options = parser.parse_args(argv)
    if options.pairs is not None and options.pairs < 1:
        parser.error("--pairs must be 1 or more")
    return options


def measure(lab, places, plan, variants):
    """The cells, and program -> Traffic of the servers and curl."""
    starter = Starter(lab, places)
    wrk = Wrk(lab, places, starter)
    work = [(path, connections) for path in PATHS for connections in plan.connections]
    progress = Progress(len(work) * plan.pairs * len(variants))
    progress.say("starting nginx and Envoy")
    chains = {variant.name: Chain(lab, places, starter, variant) for variant in variants}
    for variant in variants:
        count = bodies.check(lab, places, starter, chains[variant.name])
        progress.say(f"{variant.title}: {count} bodies fetched by curl are byte-identical")
    cells = []
    for path, connections in work:
        subject = f"{TITLES[path]}, {connections} connection{'s' if connections > 1 else ''}"
        runs = interleave(
            variants,
            plan.pairs,
            lambda variant: wrk.run(chains[variant.name], path, connections, plan.seconds),
            lambda variant: progress.step(subject, variant.title),
        )
        cells.append(Cell(path, connections, runs))
    progress.end()
    totals = {}
    if SIDESTEP in variants:
        chain = chains[SIDESTEP.name]
        for popen in reversed(chain.processes):
            lab.stop(popen)  # they report at their exit
        totals = {program: chain.report.total(program) for program in ("nginx", "envoy", "curl")}
        totals["wrk"] = Traffic()
        for cell in cells:
            totals["wrk"] += cell.traffic()
    return cells, totals


def as_text(plan, cells, totals):
    rows = []
    for cell in cells:
        path, connections = TITLES[cell.path], str(cell.connections)
        for metric, title, better in METRICS:
            values = [
                median(cell.values(name, metric)) if name in cell.runs else None
                for name in ("plain", "sidestep")
            ]
            ratio = cell.ratio(metric, better)
            figures = [table.number(value) for value in values] + [table.times(ratio), table.spread(ratio)]
            rows.append([path, connections, title, *figures, ring_cell(cell, metric)])
            path = connections = ""
        rows.append(None)
    head = ["path", "connections", "", "kernel", "Sidestep", "better by", "(min-max)", "by ring"]
    notes = [
        f"Medians of {plan.pairs} interleaved pairs of runs of {plan.seconds} s; "
        "wrk -t1, nginx 1 worker, Envoy --concurrency 1."
    ]
    notes.append(
        "'better by' is the median of the pairs' ratios: above 1 Sidestep is ahead, for rates and for times."
    )
    for program, traffic in totals.items():
        notes.append(
            f"{program}: {traffic.upgraded:,} of {traffic.seen:,} connections by ring, "
            f"{table.size(traffic.ring_bytes)} by ring, {table.size(traffic.kernel_bytes)} by kernel"
        )
    return table.text(head, rows[:-1], left=3) + "\n\n" + "\n".join(notes)


def ring_cell(cell, metric):
    """Beside the first two metrics of a cell: connections and bytes of wrk's end."""
    if SIDESTEP.name not in cell.runs:
        return ""
    traffic = cell.traffic()
    return {"rate": f"{traffic.upgraded} of {traffic.seen}", "p50": table.size(traffic.ring_bytes)}.get(
        metric, ""
    )


def as_json(plan, cells, totals, places):
    def cell_json(cell):
        metrics = {}
        for metric, title, better in METRICS:
            ratio = cell.ratio(metric, better)
            metrics[metric] = {
                "title": title,
                "better": better,
                "median": {name: median(cell.values(name, metric)) for name in cell.runs},
                "runs": {name: cell.values(name, metric) for name in cell.runs},
                "factor": dataclasses.asdict(ratio) if ratio else None,
            }
        traffic = dataclasses.asdict(cell.traffic())
        return {"path": cell.path, "connections": cell.connections, "metrics": metrics, "by_ring": traffic}

    return {
        "machine": machine.describe(places),
        "plan": dataclasses.asdict(plan),
        "cells": [cell_json(cell) for cell in cells],
        "programs": {program: dataclasses.asdict(traffic) for program, traffic in totals.items()},
    }


def write(folder, result):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "demo.json").write_text(json.dumps(result, indent=1) + "\n")
    (folder / "demo.svg").write_text(svg.demo(result, TITLES))
    return relative(folder)


def relative(path):
    """As seen from the repository, where the user most likely is."""
    path = Path(path).resolve()
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


def verdict(cells, totals, variants, complaints):
    """0 when all that should have gone by ring did; silence here would make every figure a lie."""
    if SIDESTEP not in variants:
        return 0
    dry = [
        f"{TITLES[cell.path]}, {cell.connections} connections"
        for cell in cells
        if not cell.traffic().ring_bytes
    ]
    dry += [program for program in ("nginx", "envoy", "curl") if not totals[program].ring_bytes]
    for where in dry:
        print(f"demo: FAILED: nothing went by ring: {where}; try: sidestep doctor", file=sys.stderr)
    reasons = Traffic()
    for traffic in totals.values():
        reasons += traffic
    if dry:
        print("\n".join(complaints), file=sys.stderr)
        print(
            f"demo: reasons for staying on the kernel: {reasons.reasons or 'none reported'}", file=sys.stderr
        )
    return 1 if dry else 0
