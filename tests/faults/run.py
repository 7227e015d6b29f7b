#!/usr/bin/env python3
"""Lets go wrong what the library and the broker stand on, one thing after the other, under a checked load.

  tests/faults/run.py                       everything: about a quarter of an hour
  tests/faults/run.py --quick               a selection, under a minute
  tests/faults/run.py --only library        one part: library, broker, releases, environment
  tests/faults/run.py --filter eventfd2     what has this in its name
  tests/faults/run.py --list                the names (the calls are found by running the load first)

library, broker: first the load runs unharmed, and the system calls that the library makes by itself, or the broker, are
counted. Then each of them fails with each error that it must bear: the first one, one in the middle, all of them. The
binaries are those that are shipped: the calls are stopped from outside (inject.c).
releases: a library and a broker that speak the next version of the protocol, beside those of this one.
environment: full disks, no /dev/shm, no /proc, a memory limit, clocks that differ, the broker replaced.

A round passes if every byte has arrived once and in order, both ends have ended well, and neither the broker nor the
machine has kept anything. What a machine does not allow to be tried is named and not counted.

The last line is `faults: N passed, N failed`. Tracing processes must be allowed.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from chaos import pair
from faults import broker, calls, environment, inject, rejoin, releases, rounds
from faults.outcome import NotTried
from testkit import console, leaks
from testkit.failure import Failure, check

PARTS = ("library", "broker", "releases", "environment")
# A selection takes every so many-th round: primes, so that all calls, errors and modes have their turn. It leaves out
# the releases, of which one has to be built first.
QUICK_STEPS = {"library": 17, "broker": 29, "releases": 0, "environment": 1}

# What adds the commands of the first receiver to what its thread waits for; a process is cut off in the middle; what was
# taken from a ring just before an error.
QUICK_ALWAYS = {"broker: epoll_ctl ENOMEM at 2", "broker: sendmsg ENOMEM at 15", "broker: recvmsg ENOMEM at 23",
                "library: recvmsg of the program's ENOMEM first (poll)"}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a selection, under a minute")
    parser.add_argument("--only", choices=PARTS, help="one part")
    parser.add_argument("--filter", default="", metavar="TEXT", help="only rounds that have this in their name")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    parser.add_argument("--json", action="store_true", help="print a summary as JSON before the last line")
    parser.add_argument("--verbose", action="store_true", help="a line for every round")
    return parser.parse_args()


class Run:
    """All rounds of one run."""

    def __init__(self, options):
        self.options = options
        self.tmp = Path(tempfile.mkdtemp(prefix="sidestep-faults-"))
        self.results = []
        # How the names of each call's rounds begin.
        self.calls = []
        self.bench = None

    def prepare(self):
        binary = self.tmp / "peer"
        pair.build(binary)
        self.bench = rounds.Bench(self.tmp, binary, inject.build(self.tmp))
        self.bench.start_broker()

    def plan(self):
        """(name, function) of every round that is wanted."""
        planned = []
        for part in [self.options.only] if self.options.only else PARTS:
            step = QUICK_STEPS[part] if self.options.quick else 1
            if step:
                planned += selection(getattr(self, part)(), step)
        return [(name, work) for name, work in planned if self.options.filter in name]

    def library(self):
        recorded = {place: rounds.record(self.bench, place) for place in rounds.PLACES}
        faults = rounds.library_faults(self.bench, recorded)
        self.show_calls("library", faults)
        return [(rounds.title(fault), partial(rounds.library_round, self.bench, fault)) for fault in faults]

    def broker(self):
        faults = broker.faults(self.bench, broker.record(self.bench))
        self.show_calls("broker", faults)
        return [(broker.title(fault), partial(broker.broker_round, self.bench, fault)) for fault in faults]

    def show_calls(self, part, faults):
        found = sorted({fault.name for fault in faults})
        print(f"calls of the {part}: {len(found)}: {' '.join(found)}", file=sys.stderr)
        self.calls += [f"{part}: {name} " for name in found]

    def releases(self):
        return self.named("releases", releases.ROUNDS)

    def environment(self):
        return self.named("environment", environment.ROUNDS + rejoin.ROUNDS)

    def named(self, part, functions):
        return [(f"{part}: {work.__name__.replace('_', ' ')}", partial(work, self.bench)) for work in functions]

    def one(self, name, work):
        started, result = time.monotonic(), {"name": name, "error": None, "told": None}
        try:
            result["told"] = work()
        except NotTried as why:
            print(f"not tried: {name}: {why}", file=sys.stderr)
            return None
        except (Failure, OSError, subprocess.SubprocessError) as failure:
            result["error"] = str(failure)
        result["seconds"] = round(time.monotonic() - started, 2)
        self.results.append(result)
        return result

    def go(self, planned):
        for number, (name, work) in enumerate(planned, 1):
            result = self.one(name, work)
            if result is None:
                continue
            if result["error"]:
                print(f"FAIL {name}: {result['error']}", file=sys.stderr)
            elif self.options.verbose:
                print(f"ok   {name}: {result['told']}, {result['seconds']} s", file=sys.stderr)
            elif number % 20 == 0:
                print(f"{number} of {len(planned)} rounds, {self.failed()} failed", file=sys.stderr)

    def failed(self):
        return sum(result["error"] is not None for result in self.results)

    def final_checks(self):
        """What must be true after all rounds; returns what is not."""
        return self.never_failed() + self.leftovers()

    def never_failed(self):
        """In a run of everything each call has failed in some round at least, but for those that no load makes for sure."""
        if self.options.quick or self.options.filter:
            return []
        rare = {f"library: {name} " for name in calls.NOT_LATER}
        return [f"{call.strip()} never failed" for call in self.calls
                if call not in rare and not any(result["name"].startswith(call) for result in self.results)]

    def leftovers(self):
        try:
            check(not leaks.processes_of(self.bench.binary), "peers still run")
            self.bench.stop_broker()
        except (Failure, OSError) as failure:
            return [str(failure)]
        return []

    def cleanup(self):
        if self.bench is not None:
            for pid in leaks.processes_of(self.bench.binary):
                os.kill(pid, signal.SIGKILL)
            try:
                self.bench.stop_broker()
            except Failure:
                pass  # it has been killed then, and final_checks has told
        shutil.rmtree(self.tmp, ignore_errors=True)


def selection(rounds_of_part, step):
    """Every so many-th, and those that a selection must not leave out."""
    return [(name, work) for number, (name, work) in enumerate(rounds_of_part)
            if number % step == 0 or name in QUICK_ALWAYS]


def main():
    options = parse_arguments()
    console.end_by_signals()
    started, errors, run = time.monotonic(), [], Run(options)
    try:
        run.prepare()
        planned = run.plan()
        if options.list:
            print(*(name for name, _ in planned), sep="\n")
            return 0
        run.go(planned)
        errors = run.final_checks() if run.results else ["no round was run"]
    except KeyboardInterrupt:
        errors = ["interrupted"]
    except (Failure, OSError, subprocess.SubprocessError) as failure:
        errors = [str(failure)]
    finally:
        run.cleanup()
    return summarize(run, errors, options, time.monotonic() - started)


def summarize(run, errors, options, seconds):
    for error in errors:
        print(f"FAIL {error}", file=sys.stderr)
    passed, failed = len(run.results) - run.failed(), run.failed() + len(errors)
    print(f"{len(run.results)} rounds in {seconds:.0f} s", file=sys.stderr)
    if options.json:
        print(json.dumps({"seconds": round(seconds, 1), "passed": passed, "failed": failed, "errors": errors,
                          "rounds": run.results}))
    print(f"faults: {passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
