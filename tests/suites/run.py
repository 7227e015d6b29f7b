#!/usr/bin/env python3
"""Runs test suites that others have written, with and without Sidestep, and compares.

Each suite runs three ways: plain, upgraded (every connection at its first byte) and flip (the same with streams that
change their carrier every few kilobytes). What fails under Sidestep must fail on plain kernel TCP too, and where both
ends of a connection are under Sidestep the reports must show bytes by ring.

  tests/suites/run.py                          everything: about two hours
  tests/suites/run.py --quick                  a part of it, in about a minute
  tests/suites/run.py --suite cpython --filter test_ssl
  tests/suites/run.py --suite stress-ng --seconds 10

A test that fails under Sidestep only is run again alone, in both ways. If it then passes, or fails without Sidestep
too, it is named as unsteady and counts as passed. The last line is `suites: N passed, N failed`.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from suites import cpython, kernel, sanitizers, stress_ng
from suites.tally import Tally
from suites.ways import Way
from testkit import console
from testkit.failure import Failure

SUITES = {"cpython": cpython, "stress-ng": stress_ng, "kernel": kernel, "sanitizers": sanitizers}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", choices=SUITES, help="only this one")
    parser.add_argument("--filter", action="append", default=[], metavar="TEXT",
                        help="only modules or stressors with TEXT in their name ($ is its end); several: any of them")
    parser.add_argument("--quick", action="store_true", help="only what is done soon")
    parser.add_argument("--seconds", type=int, metavar="N", help="for each stressor (default 60, or 2 with --quick)")
    parser.add_argument("--json", action="store_true", help="print the results as one JSON object before the last line")
    parser.add_argument("--keep", action="store_true", help="keep the directories (logs, results, reports)")
    options = parser.parse_args()
    options.wants = lambda name: not options.filter or any(text in f"{name}$" for text in options.filter)
    return options


def run_suite(name, options, tmp):
    """One suite; whatever happens in it becomes a failure of it, and nothing keeps running."""
    tally, every = Tally(name), []
    directory = tmp / name
    directory.mkdir()

    def make_way(kind):
        every.append(Way(kind, directory))
        return every[-1]

    try:
        SUITES[name].run(tally, options, make_way)
    except (Failure, OSError, subprocess.SubprocessError) as failure:
        tally.fail(name, "all", str(failure))
    finally:
        for way in every:
            way.destroy()
    return tally


def main():
    options = parse_arguments()
    # Tests that send SIGINT would inherit that a shell ignores it for what runs in the background.
    console.end_by_signals()
    started, tallies, interrupted = time.monotonic(), [], 0
    tmp = Path(tempfile.mkdtemp(prefix="ss-suites-"))
    try:
        for name in SUITES:
            if options.suite in (None, name):
                tallies.append(run_suite(name, options, tmp))
    except KeyboardInterrupt:
        print("interrupted; everything that was started has been stopped", file=sys.stderr)
        interrupted = 1
    finally:
        if options.keep:
            print(f"kept: {tmp}", file=sys.stderr)
        else:
            shutil.rmtree(tmp, ignore_errors=True)
    return summarize(tallies, interrupted, options, time.monotonic() - started)


def summarize(tallies, interrupted, options, seconds):
    passed = sum(tally.passed for tally in tallies)
    failed = sum(len(tally.failures) for tally in tallies) + interrupted
    if passed == 0 and failed == 0:
        failed = 1  # nothing was chosen
    unsteady = sum(len(tally.unsteady) for tally in tallies)
    print(f"{seconds:.0f} s, {unsteady} unsteady", file=sys.stderr)
    if options.json:
        print(json.dumps({"seconds": round(seconds, 1), "passed": passed, "failed": failed,
                          "versions": {tally.suite: SUITES[tally.suite].version() for tally in tallies if tally.rows},
                          "suites": [tally.as_dict() for tally in tallies]}))
    print(f"suites: {passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
