#!/usr/bin/env python3
"""Runs real programs under Sidestep and checks what they do.

Each test runs in several modes: plain (does the test itself work on kernel TCP?), preloaded (under `sidestep run`,
where it must also show, from the report files, that the bytes of both ends went by ring), and flip (the same with
streams that change their carrier every few kilobytes). A program that is not installed is a failure.

  tests/apps/run.py                          all quick tests, plain and preloaded, a few minutes
  tests/apps/run.py --slow --mode all        every test in every mode, as `make compat` does
  tests/apps/run.py --filter redis           the tests whose name has "redis" in it
  tests/apps/run.py --skip libc_             those whose name does not have "libc_" in it
  tests/apps/run.py --mode plain             without Sidestep: proves the tests, needs no build

The last line is `apps: N passed, N failed`.
"""

import argparse
import functools
import importlib
import json
import os
import pkgutil
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from apps import programs
from testkit import console
from testkit.case import Case
from testkit.failure import Failure
from testkit.sidestep import Sidestep

MODES = ("plain", "preloaded", "flip")
# Bytes between two changes of carrier.
FLIP_BYTES = 4000
# No quick test needs more than a few seconds; one that does not come back must not hold up all others.
TEST_SECONDS = 120


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filter", default="", metavar="TEXT", help="only tests with TEXT in their name")
    parser.add_argument("--skip", action="append", default=[], metavar="TEXT",
                        help="not the tests with TEXT in their name (may be given several times)")
    parser.add_argument("--list", action="store_true", help="print the names of the tests and end")
    parser.add_argument("--json", action="store_true", help="print the results as one JSON object at the end")
    parser.add_argument("--keep", action="store_true", help="keep the temporary directories (logs, reports)")
    parser.add_argument("--slow", action="store_true", help="also the tests that take long or need more programs")
    parser.add_argument("--mode", action="append", choices=(*MODES, "all"),
                        help="in this mode (may be given several times; default: plain and preloaded)")
    return parser.parse_args()


def chosen_modes(options):
    wanted = options.mode or ["plain", "preloaded"]
    return [mode for mode in MODES if mode in wanted or "all" in wanted]


def discover(text, skipped, slow):
    """The tests as (name, function), sorted by name."""
    tests = []
    for module in pkgutil.iter_modules(programs.__path__):
        loaded = importlib.import_module(f"apps.programs.{module.name}")
        for name, function in vars(loaded).items():
            if name.startswith("test_"):
                tests.append((f"{module.name}.{name.removeprefix('test_')}", function))
    return sorted(test for test in tests if text in test[0] and not any(word in test[0] for word in skipped)
                  and (slow or not getattr(test[1], "slow", False)))


def run_one(name, function, mode, number, keep):
    """Runs one test in one mode and returns its result, whatever happens in it."""
    started = time.monotonic()
    case, reports, error = None, {}, None
    signal.alarm(getattr(function, "limit_seconds", TEST_SECONDS))
    try:
        layer = None
        if mode != "plain":
            layer = Sidestep(f"@sidestep-app-{os.getpid()}-{number}", flip=FLIP_BYTES if mode == "flip" else 0)
        case = Case(name, layer)
        function(case)
        reports = case.finish()
    except (Failure, TimeoutError) as failure:
        error = str(failure) + (case.ended_by_themselves() if case is not None else "")
    except Exception as failure:  # noqa: BLE001 - a defect of one test must not end the others
        error = f"{type(failure).__name__}: {failure}"
    finally:
        signal.alarm(0)
        if case is not None:
            case.cleanup(keep)
    seconds = round(time.monotonic() - started, 2)
    kept = str(case.tmp) if case is not None and keep else None
    return {"name": name, "mode": mode, "version": version(function), "about": about(function), "ok": error is None, "seconds": seconds,
            "error": error, "reports": reports, "directory": kept}


@functools.cache
def version_of(module):
    ask = getattr(sys.modules[module], "version", None)
    try:
        return ask() if ask else ""
    except (Failure, OSError, subprocess.SubprocessError) as failure:
        return f"unknown ({failure})"


def version(function):
    """The version of the program under test, if its module can tell."""
    return version_of(function.__module__)


def about(function):
    """What the test exercises, in its own words."""
    return " ".join((function.__doc__ or "").split("\n\n")[0].split())


def show(result):
    """One line for a test, and below it what went wrong. With --json this goes to stderr."""
    rings = ", ".join(f"{role} {r['ring']:,}/{r['ring'] + r['kernel']:,}" for role, r in result["reports"].items())
    line = f"{'ok  ' if result['ok'] else 'FAIL'} {result['name']} [{result['mode']}] {result['seconds']:.1f} s"
    print(line + (f"   bytes by ring: {rings}" if rings else ""), file=sys.stderr)
    if result["error"]:
        print(f"     {result['error']}", file=sys.stderr)
    if result["directory"]:
        print(f"     kept: {result['directory']}", file=sys.stderr)


def missing_binaries():
    """What is wrong with the build, said once and not for every test."""
    try:
        Sidestep("@unused")
    except Failure as failure:
        return str(failure)
    return None


def on_alarm(_signal, _frame):
    raise TimeoutError("the test did not end in its time")


def main():
    options = parse_arguments()
    tests = discover(options.filter, options.skip, options.slow)
    if options.list:
        print("\n".join(name for name, _ in tests))
        return 0
    modes = chosen_modes(options)
    if modes != ["plain"] and (missing := missing_binaries()):
        print(f"FAIL {missing}", file=sys.stderr)
        print("apps: 0 passed, 1 failed")
        return 1
    signal.signal(signal.SIGALRM, on_alarm)
    console.end_by_signals()
    results = []
    try:
        for name, function in tests:
            for mode in modes:
                results.append(run_one(name, function, mode, len(results), options.keep))
                show(results[-1])
    except KeyboardInterrupt:
        print("interrupted; everything that was started has been stopped", file=sys.stderr)
    passed = sum(result["ok"] for result in results)
    complete = len(results) == len(tests) * len(modes) and results
    failed = len(results) - passed + (0 if complete else 1)
    if options.json:
        print(json.dumps({"results": results, "passed": passed, "failed": failed}))
    print(f"apps: {passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
