"""The command."""

import argparse
import dataclasses
import json
import os
import sys
from pathlib import Path

from .. import machine
from ..errors import LabError
from ..interleave import Progress
from ..lab import Lab
from ..page import within
from ..places import ROOT, Places
from . import cluster, plot, report
from .contestants import ALL
from .plan import Plan
from .rounds import Rounds

ABOUT = """\
Measures what a Kubernetes Service costs: new connections, requests on a kept connection, CPU, loading all Services and
changing one endpoint, for Sidestep, for rules as kube-proxy writes them, for kube-proxy itself where it was built (make
test-kube), and for pod to pod without a Service. Clusters are network namespaces without a route outside; needs root.
Writes services.md, services.svg and services.json.
Figures are figures: a missed goal is not a failure of the command.
"""
#: Whose versions matter.
PROGRAMS = ("iptables-nft-restore", "nft", "kube-proxy")
PAGE = ROOT / "docs" / "services-performance.md"
#: Around what an option writes there.
WRITE, WRITE_KUBE = (f"<!-- made by tools/bench-services {option} -->" for option in ("--write", "--write-kube"))


def main(argv=None):
    options = parse(argv)
    if options.again:
        write(*report.from_json(json.loads(Path(options.again).read_text(encoding="utf-8"))), options)
        return 0
    try:
        write(*measure(options), options)
    except KeyboardInterrupt as why:
        say = f"stopped by {why or 'Ctrl-C'}; everything it started is stopped and removed"
        print(f"\nbench-services: {say}", file=sys.stderr)
        return 130
    except LabError as why:
        print(f"bench-services: {why}", file=sys.stderr)
        return 1
    return 0


def measure(options):
    """The results by size and name, why some are missing, how and on what they were measured."""
    places = Places(options.release, None, options.out, install="bench-services", kube=options.kube)
    kinds, absent = take_part(places, options.only)
    before = os.getloadavg()
    cluster.remove_leftovers()
    with Lab() as lab:
        rounds = Rounds(lab, places, options.plan, kinds, Progress(0).say)
        rounds.run()
    described = machine.describe(places, PROGRAMS) | {"load_before": before}
    return rounds.sizes, absent | rounds.absent, options.plan, described


def parse(argv):
    names = [kind.name for kind in ALL]
    parser = argparse.ArgumentParser(prog="tools/bench-services", description=ABOUT)
    parser.add_argument(
        "--sizes", type=numbers, metavar="N,...", help=f"numbers of Services ({listed(Plan.sizes)})"
    )
    parser.add_argument("--rounds", type=int, metavar="N", help=f"rounds at each size ({Plan.rounds})")
    parser.add_argument("--only", metavar="NAME,...", help=f"of {', '.join(names)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="a minute: does it work at all?")
    parser.add_argument(
        "--again", metavar="FILE", help="tables and picture of an earlier run's services.json"
    )
    parser.add_argument("--json", metavar="FILE", help="write the figures here as well")
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.relative_to(ROOT)}")
    parser.add_argument(
        "--write-kube", action="store_true", help="the same for its section about the real kube-proxy"
    )
    parser.add_argument("--release", metavar="DIR", help="where the programs were built (target/release)")
    parser.add_argument(
        "--kube", metavar="DIR", help="where kube-proxy and kube-apiserver were built (target/kube/bin)"
    )
    parser.add_argument("--out", metavar="DIR", help="bench-services/services.* go here (target)")
    options = parser.parse_args(argv)
    unknown = set(options.only.split(",")) - set(names) if options.only else ()
    if unknown:
        parser.error(
            f"--only: no such contestant: {', '.join(sorted(unknown))}; there are {', '.join(names)}"
        )
    plan = Plan.quick() if options.quick else Plan()
    given = {name: getattr(options, name) for name in ("sizes", "rounds") if getattr(options, name)}
    options.plan = dataclasses.replace(plan, **given)
    if options.plan.rounds < 1 or min(options.plan.sizes) < 1:
        parser.error("--rounds and --sizes must be 1 or more")
    return options


def numbers(text):
    return tuple(sorted({int(word) for word in text.split(",")}))


def listed(values):
    return ",".join(map(str, values))


def take_part(places, only):
    """Those that can, and why the others cannot."""
    wanted = [kind for kind in ALL if not only or kind.name in only.split(",")]
    absent = {(kind.name, 0): why for kind in wanted if (why := kind.missing(places))}
    return [kind for kind in wanted if (kind.name, 0) not in absent], absent


def write(sizes, absent, plan, described, options):
    text = report.markdown(sizes, absent, plan, described)
    result = report.as_json(sizes, absent, plan, described)
    folder = Path(options.out or ROOT / "target") / "bench-services"
    folder.mkdir(parents=True, exist_ok=True)
    figures = json.dumps(result, indent=1) + "\n"
    picture = plot.picture(result)
    (folder / "services.md").write_text(text, encoding="utf-8")
    (folder / "services.json").write_text(figures, encoding="utf-8")
    (folder / "services.svg").write_text(picture, encoding="utf-8")
    if options.json:
        Path(options.json).write_text(figures, encoding="utf-8")
    if options.write:
        PAGE.with_suffix(".svg").write_text(picture, encoding="utf-8")
    for mark in [WRITE] * options.write + [WRITE_KUBE] * options.write_kube:
        PAGE.write_text(within(PAGE.read_text(encoding="utf-8"), mark, text), encoding="utf-8")
    print(text)
    print(f"tables, picture and figures: {folder}/services.{{md,svg,json}}", file=sys.stderr)
