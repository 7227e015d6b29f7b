#!/usr/bin/env python3
"""Two hosts, in network namespaces of their own on one cable: connections between them by the stack.

  tests/hosts/run.py [--filter TEXT] [--skip TEXT] [--seed N] [--stack PATH] [--keep] [--jobs N]
  tests/hosts/run.py --part quick     what takes seconds; `slow` takes longer, `more` minutes. Without it: quick and slow
  tests/hosts/run.py --filter deaths --rounds 100 --json FILE    so many rounds; figures of the cases that have some

The last line is `hosts: N passed, N failed`.
"""

import argparse
import json
import multiprocessing
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hosts import (  # noqa: F401 - they list their cases
    apps,
    cases,
    congestion,
    deaths,
    foreign,
    hostile,
    idle,
    impaired,
    jumbo,
    locks,
    long,
    mesh,
    peers,
    renewed,
    stalls,
    switches,
    takes,
    told,
    translated,
    tunnels,
    untaken,
)
from hosts.registry import CASES, PARTS, QUICK, SLOW
from testkit import console
from testkit.failure import Failure
from testkit.paths import TARGET


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filter", default="")
    parser.add_argument("--skip", help="not the cases whose names have this")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--stack", type=Path, default=TARGET / "debug" / "sidestep-stack")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--part", action="append", choices=PARTS, help="may be given several times")
    parser.add_argument("--jobs", type=int, default=1, help="cases at a time, each with hosts of its own")
    parser.add_argument("--rounds", type=int, help="of cases that consist of rounds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="writes the figures of the cases there")
    args = parser.parse_args()
    console.must_be_root("tests/hosts/run.py")
    console.end_by_signals()
    parts = args.part or [QUICK, SLOW]
    chosen = [n for n, case in enumerate(CASES) if case.part in parts and is_chosen(case.function.__name__, args)]
    # A process for each case: names of what it makes on the machine hold the number of its process.
    with multiprocessing.get_context("fork").Pool(args.jobs, maxtasksperchild=1) as pool:
        results = pool.imap_unordered(run_case, [(n, args) for n in chosen], chunksize=1)
        done = list(results)
        pool.close()
        pool.join()
    passed = sum(has_passed for _, has_passed, _ in done)
    if args.json:
        args.json.write_text(json.dumps({name: figures for name, _, figures in done if figures}, indent=2) + "\n")
    print(f"hosts: {passed} passed, {len(chosen) - passed} failed")
    sys.exit(1 if passed < len(chosen) or not chosen else 0)


def is_chosen(name, args):
    return args.filter in name and not (args.skip and args.skip in name)


def run_case(job):
    """Runs one case of the list. Returns its name, whether it passed, and its figures."""
    number, args = job
    case = CASES[number]
    name, began = case.function.__name__, time.monotonic()
    console.end_by_signals()
    bed = case.bed(args.stack, args.keep)
    bed.rounds, bed.figures = args.rounds, {}
    try:
        with bed:
            case.function(bed, args.seed)
    except Exception as failure:  # whatever a case has not foreseen: the others run on
        said = failure if isinstance(failure, Failure) else traceback.format_exc()
        print(f"FAIL  {name}, seed {args.seed}: {said}", flush=True)
        return name, False, bed.figures
    print(f"ok    {name} ({time.monotonic() - began:.1f} s)", flush=True)
    return name, True, bed.figures


if __name__ == "__main__":
    main()
