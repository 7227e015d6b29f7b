#!/usr/bin/env python3
"""Connections that `sidestep capture` sends through a real Envoy, next to what iptables makes of them.

Pods are network namespaces without a way outside, with real Envoys as sidecars. Where an outcome can be compared with
that of istio-iptables' rules, the same case runs in a double of the pods in which those redirect.

  tests/capture/run.py                    every case, in about a minute
  tests/capture/run.py --slow             with the big numbers
  tests/capture/run.py --filter restarts  the cases whose name has "restarts" in it

The last line is `capture: N passed, N failed`.
"""

import argparse
import importlib
import pkgutil
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from capture import cases, tasks
from capture.testbed import Testbed
from testkit import console
from testkit.console import say
from testkit.failure import Failure

CASE_SECONDS = 120
SLOW_SECONDS = 600
# These end what the others need.
LAST = "removal."


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filter", action="append", default=[], metavar="TEXT", help="only cases with TEXT in the name")
    parser.add_argument("--list", action="store_true", help="print the names of the cases and end")
    parser.add_argument("--slow", action="store_true", help="big numbers")
    parser.add_argument("--keep", action="store_true", help="keep the logs")
    return parser.parse_args()


def discover(texts):
    """The cases as (name, function)."""
    found = []
    for module in pkgutil.iter_modules(cases.__path__):
        loaded = importlib.import_module(f"capture.cases.{module.name}")
        found += [(f"{module.name}.{name.removeprefix('test_')}", function)
                  for name, function in vars(loaded).items() if name.startswith("test_")]
    found.sort(key=lambda one: (one[0].startswith(LAST), one[0]))
    return [one for one in found if not texts or any(text in one[0] for text in texts)]


def details(failure):
    """A defect of a case, or what a program of a pod met: where it was, as briefly as may be."""
    return "".join(traceback.format_exception(failure, limit=-2)).strip()


def run_case(testbed, name, function):
    """Whether it passed."""
    started, error = time.monotonic(), None
    signal.alarm(SLOW_SECONDS if testbed.slow else CASE_SECONDS)
    try:
        function(testbed)
        for world in (testbed.ours, testbed.twin):
            world.must_run()
    except (Failure, TimeoutError) as failure:
        error = f"{failure}"
    except Exception as failure:  # noqa: BLE001 - a defect of one case must not end the others
        error = details(failure)
    finally:
        signal.alarm(0)
        tasks.end_all()
    say(f"{'FAIL' if error else 'ok  '} {name} {time.monotonic() - started:.1f} s")
    if error:
        say("\n".join(f"     {line}" for line in error.splitlines()))
    return error is None


def on_alarm(_signal, _frame):
    raise TimeoutError("the case did not end in its time")


def main():
    options = parse_arguments()
    chosen = discover(options.filter)
    if options.list:
        print("\n".join(name for name, _ in chosen))
        return 0
    console.must_be_root("tests/capture/run.py")
    signal.signal(signal.SIGALRM, on_alarm)
    console.end_by_signals()
    passed = failed = 0
    try:
        with Testbed(options.slow, options.keep) as testbed:
            for name, function in chosen:
                good = run_case(testbed, name, function)
                passed, failed = passed + good, failed + (not good)
    except (Failure, OSError, subprocess.SubprocessError) as failure:
        say(f"FAIL testbed: {failure}")
        failed += 1
    except KeyboardInterrupt:
        say("interrupted; everything that was started has been stopped")
        failed += 1
    print(f"capture: {passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
