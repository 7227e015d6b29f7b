"""The command."""

import argparse
import dataclasses
import json
import os
import sys
from pathlib import Path

from .. import machine
from ..errors import LabError
from ..lab import Lab
from ..page import within
from ..places import ROOT, Places
from . import node, plot, profile, report
from .contestants import ALL
from .plan import LOADS, Plan
from .rounds import Rounds
from .rules import WALKS

ABOUT = """\
Measures what it costs to lead the traffic of two pods through their Envoys, with mTLS and authorization: latencies at
constant rates and at saturation, CPU of each program and of the machine, for iptables' rules as istio-iptables writes
them, for Sidestep, and without a mesh. Pods are network namespaces without a route outside; needs root. Writes mesh.md,
mesh.svg and mesh.json. Figures are figures: a missed goal is not a failure of the command.
"""
#: Whose versions matter.
PROGRAMS = ("envoy", "nginx", "iptables-restore")
PAGE = ROOT / "docs" / "mesh-performance.md"
MARK = "<!-- made by tools/bench-mesh --write -->"
PROFILE_MARK = "<!-- made by tools/bench-mesh --profile --write -->"


def main(argv=None):
    options = parse(argv)
    if options.again:
        write(*report.from_json(json.loads(Path(options.again).read_text(encoding="utf-8"))), options)
        return 0
    try:
        if options.profile:
            return profiled(options)
        measured = measure(options)
        write(*measured, options)
        if options.check:
            return checked(measured[0], options)
    except KeyboardInterrupt as why:
        say = f"stopped by {why or 'Ctrl-C'}; everything it started is stopped and removed"
        print(f"\nbench-mesh: {say}", file=sys.stderr)
        return 130
    except LabError as why:
        print(f"bench-mesh: {why}", file=sys.stderr)
        return 1
    return 0


def profiled(options):
    places = Places(options.release, options.envoy, options.out, install="bench-mesh")
    kinds, _ = take_part(places, options.who)
    table = profile.profile(places, options.plan, [kind for kind in kinds if kind.led])
    print(table)
    if options.write:
        PAGE.write_text(within(PAGE.read_text(encoding="utf-8"), PROFILE_MARK, table + "\n"), encoding="utf-8")
    return 0


def checked(results, options):
    """Whether each contestant took part and lost no request, with each number of rules: a line for each that did not."""
    troubles = [trouble for rules in options.plan.rules for who in options.who for trouble in lost(results, rules, who)]
    for who, rules, why in troubles:
        print(f"FAIL {who}, {rules:,} rules: {why}")
    failed = len({trouble[:2] for trouble in troubles})
    print(f"mesh: {len(options.plan.rules) * len(options.who) - failed} passed, {failed} failed")
    return 1 if failed else 0


def lost(results, rules, who):
    """(contestant, rules, why)"""
    why = results.absent.get((who, None)) or results.absent.get((who, rules))
    if why:
        yield who, rules, why.splitlines()[0]
    for (cell, name), turns in results.turns.items():
        if (cell.rules, name) == (rules, who):
            late = sum(turn["unanswered"] + turn["failed"] for turn in turns if turn)
            if late or None in turns:
                yield who, rules, f"{cell.name}: {late:,} requests lost, {turns.count(None)} turns failed"


def measure(options):
    """The results, how and on what they were measured."""
    places = Places(options.release, options.envoy, options.out, install="bench-mesh")
    places.envoy()
    kinds, absent = take_part(places, options.who)
    before = os.getloadavg()
    node.remove_leftovers()
    with Lab() as lab:
        rounds = Rounds(lab, places, options.plan, kinds)
        rounds.run()
    rounds.results.absent |= absent
    return rounds.results, options.plan, machine.describe(places, PROGRAMS) | {"load_before": before}


def parse(argv):
    names, loads = [kind.name for kind in ALL], [load.name for load in LOADS]
    parser = argparse.ArgumentParser(prog="tools/bench-mesh", description=ABOUT)
    parser.add_argument(
        "--rounds",
        type=int,
        metavar="N",
        help=f"through all cells ({Plan.rounds} of {Plan.full} connections, {Plan.main_rounds} of others)",
    )
    parser.add_argument("--seconds", type=float, metavar="S", help=f"of one turn ({Plan.seconds:g})")
    parser.add_argument(
        "--only",
        type=words,
        metavar="CELL,...",
        help=f"RULES/LOAD/CONNECTIONS, as 0/1000/64 or '*/max/*'; loads are {', '.join(loads)}",
    )
    parser.add_argument(
        "--rules", type=numbers, metavar="N,...", help=f"on the node ({','.join(map(str, Plan.rules))})"
    )
    parser.add_argument(
        "--walk", choices=WALKS, help=f"what they are, and what looks through all of them ({Plan.walk})"
    )
    parser.add_argument(
        "--upstream", choices=("pod", "vip"), help=f"what the client's sidecar dials ({Plan.upstream})"
    )
    parser.add_argument(
        "--requests", type=int, metavar="N", help=f"that a connection carries; 0: any number ({Plan.requests})"
    )
    parser.add_argument("--who", type=words, metavar="NAME,...", help=f"of {', '.join(names)}; they take part in all cells")
    parser.add_argument("--seed", type=int, metavar="N", help=f"of the order of turns ({Plan.seed})")
    parser.add_argument("--quick", action="store_true", help="a minute: does it work at all?")
    parser.add_argument(
        "--check", action="store_true", help="fail if a contestant cannot take part, or has lost requests"
    )
    parser.add_argument(
        "--profile", action="store_true", help="only where the sidecars' CPU goes at saturation; needs perf"
    )
    parser.add_argument("--again", metavar="FILE", help="tables and picture of an earlier run's mesh.json")
    parser.add_argument("--json", metavar="FILE", help="write the figures here as well")
    parser.add_argument("--plot", metavar="FILE", help="draw the picture here as well")
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.relative_to(ROOT)}")
    parser.add_argument("--release", metavar="DIR", help="where the programs were built (target/release)")
    parser.add_argument("--envoy", metavar="FILE", help="the Envoy binary (default: the one in target/venv)")
    parser.add_argument("--out", metavar="DIR", help="bench-mesh/mesh.* go here (target)")
    options = parser.parse_args(argv)
    everybody, options.who = bool(options.who), options.who or names
    if unknown := set(options.who) - set(names):
        parser.error(
            f"--who: no such contestant: {', '.join(sorted(unknown))}; there are {', '.join(names)}"
        )
    plan = Plan.quick() if options.quick else Plan()
    fields = ("rounds", "seconds", "only", "rules", "walk", "upstream", "requests", "seed")
    given = {name: getattr(options, name) for name in fields if getattr(options, name) is not None}
    if "rounds" in given:
        given["main_rounds"] = given["rounds"]
    options.plan = dataclasses.replace(plan, everybody=everybody, **given)
    if options.plan.rounds < 1 or options.plan.seconds <= 0 or min(options.plan.rules) < 0:
        parser.error("--rounds must be 1 or more, --seconds more than 0, --rules 0 or more")
    if not any(options.plan.cells(count) for count in options.plan.rules):
        parser.error(f"--only: no cell has a name like {','.join(options.plan.only)}")
    return options


def words(text):
    return tuple(text.split(","))


def numbers(text):
    return tuple(sorted({int(word) for word in text.split(",")}))


def take_part(places, who):
    """Those that can, and why the others cannot."""
    wanted = [kind for kind in ALL if kind.name in who]
    absent = {(kind.name, None): why for kind in wanted if (why := kind.missing(places))}
    return [kind for kind in wanted if (kind.name, None) not in absent], absent


def write(results, plan, described, options):
    text = report.markdown(results, plan, described)
    result = report.as_json(results, plan, described)
    figures, picture = json.dumps(result, indent=1) + "\n", plot.picture(result)
    folder = Path(options.out or ROOT / "target") / "bench-mesh"
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (("mesh.md", text), ("mesh.json", figures), ("mesh.svg", picture)):
        (folder / name).write_text(content, encoding="utf-8")
    for file, content in ((options.json, figures), (options.plot, picture)):
        if file:
            Path(file).write_text(content, encoding="utf-8")
    if options.write:
        PAGE.with_suffix(".svg").write_text(picture, encoding="utf-8")
        PAGE.write_text(within(PAGE.read_text(encoding="utf-8"), MARK, text), encoding="utf-8")
    print(text)
    print(f"tables, picture and figures: {folder}/mesh.{{md,svg,json}}", file=sys.stderr)
