#!/usr/bin/env python3
"""What is shipped: Debian packages, the image, the chart and its manifests, dashboard and alerts.

The packages are installed into a small Debian made for it, used, upgraded and purged; the upper directory of an overlay shows what
is left. In another one, which has servers of Debian, a client of another user talks to each of them by ring. The image's programs run
in the image. The chart is rendered with good and bad values; what it makes is compared with the schemas of Kubernetes, and every
expression with the metrics that programs really have.

  tests/packages/run.py                    all
  tests/packages/run.py --filter upgrade   cases whose names contain this
  tests/packages/run.py --skip chart.      without those of the chart, which need helm (may be given several times)
  tests/packages/run.py --programs DIR     programs that were built there (may be given several times)

Runs in a network and a mount namespace of its own; needs root. The last line is `packages: N passed, N failed`.
"""

import argparse
import os
import signal
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from packages import booted, chart, debs, expressions, images, removal_chart, servers
from packages.world import DEBIAN, World
from testkit import console
from testkit.failure import Failure
from testkit.paths import TARGET

INSIDE = "SIDESTEP_PACKAGES_INSIDE"
CASE_SECONDS = 600
MODULES = (debs, booted, servers, images, chart, removal_chart, expressions)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filter", default="", metavar="TEXT", help="only cases whose names contain this")
    parser.add_argument("--skip", action="append", default=[], metavar="TEXT", help="no cases whose names contain this")
    parser.add_argument("--programs", action="append", metavar="DIR", help="default: target/release, then target/debug")
    parser.add_argument("--list", action="store_true", help="print the names of the cases and end")
    return parser.parse_args()


def cases(text, skipped=()):
    found = [(f"{module.__name__.split('.')[-1]}.{name[5:]}", function)
             for module in MODULES for name, function in vars(module).items() if name.startswith("test_")]
    return [(name, function) for name, function in found if text in name and not any(one in name for one in skipped)]


def debians(chosen):
    """Those in which the cases run."""
    return {getattr(sys.modules[function.__module__], "DEBIAN", DEBIAN) for _, function in chosen}


def into_namespaces():
    """This program once more. What it mounts goes with it, and nothing of it reaches the network."""
    os.environ[INSIDE] = "yes"
    os.execvp("unshare", ["unshare", "--mount", "--net", sys.executable, *sys.argv])


def run_case(world, name, function):
    """Whether it passed."""
    started, error = time.monotonic(), None
    signal.alarm(CASE_SECONDS)
    try:
        function(world)
    except (Failure, TimeoutError) as failure:
        error = str(failure)
    except Exception as failure:  # noqa: BLE001 - a defect of one case must not end the others
        error = "".join(traceback.format_exception(failure, limit=-3)).strip()
    finally:
        signal.alarm(0)
    console.say(f"{'FAIL' if error else 'ok  '} {name} {time.monotonic() - started:.1f} s")
    if error:
        console.say("\n".join(f"     {line}" for line in error.splitlines()))
    return error is None


def on_alarm(_signal, _frame):
    raise TimeoutError(f"the case did not end in {CASE_SECONDS} s")


def main():
    options = parse_arguments()
    chosen = cases(options.filter, options.skip)
    if options.list:
        print("\n".join(name for name, _ in chosen))
        return 0
    console.must_be_root("tests/packages/run.py")
    if INSIDE not in os.environ:
        for debian in debians(chosen):
            debian.make()
        into_namespaces()
    signal.signal(signal.SIGALRM, on_alarm)
    console.end_by_signals()
    passed = failed = 0
    directories = options.programs or [TARGET / "release", TARGET / "debug"]
    try:
        with World([Path(directory).resolve() for directory in directories]) as world:
            for name, function in chosen:
                good = run_case(world, name, function)
                passed, failed = passed + good, failed + (not good)
    except (Failure, OSError) as failure:
        console.say(f"FAIL world: {failure}")
        failed += 1
    except KeyboardInterrupt:
        console.say("interrupted")
        failed += 1
    print(f"packages: {passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
