#!/usr/bin/env python3
"""Mixed load for an hour, after which nothing may have grown and nothing may still run.

Services: nginx with two workers, another one that is reloaded, Envoy (HTTP and tcp_proxy), redis, memcached. Loads, in
bursts: wrk on kept connections, thousands of short connections that end in every way, redis-benchmark, bodies and
values compared byte for byte, clients that are killed, reloads, `sidestep detach --all` and `attach`, and all the time
connections that idle. Between bursts only the idle connections are left, and what every service and the broker holds is
sampled: descriptors, mappings, threads, resident and shared memory, and the library's own part of these.

After a first third of warm-up the rest must be level; a leak of one descriptor, mapping or page in 1000 connections
would show in an hour. A first pass (selftest) lets a program leak exactly that, and must find it; a second (pause) ends
hundreds of connections while the broker is stopped. When the load has ended everything rests, and nobody may use more
processor time or wake up more often than the same services do without Sidestep, the broker not at all. At the end no
slot is taken and every link is let go.

  tests/soak/run.py                   an hour
  tests/soak/run.py --seconds 600     ten minutes; the table says what leak such a run would have seen
  tests/soak/run.py --quick           a minute or so, as in `make test`
  tests/soak/run.py --pass selftest   only the program that leaks

The last line is `soak: N passed, N failed`, in checks.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from soak import pause, selftest
from soak.soak import Soak, rest_of_plain
from testkit import console
from testkit.failure import Failure

PASSES = ("selftest", "pause", "upgraded", "flip")
QUICK_SECONDS = 40
# Parts of the whole time; what is left is for starting, resting and ending.
SHARES = {"upgraded": 0.6, "flip": 0.3}
QUICK_SHARES = {"upgraded": 0.3, "flip": 0.2}
FLIP_BYTES = 4000


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600, help="for all passes together (default 3600)")
    parser.add_argument("--quick", action="store_true", help="the shortest form: a minute or so")
    parser.add_argument("--pass", dest="passes", action="append", choices=PASSES, help="only this pass")
    parser.add_argument("--json", action="store_true", help="print all samples and checks as one JSON object")
    parser.add_argument("--keep", action="store_true", help="keep the directories (logs, reports)")
    return parser.parse_args()


def run_passes(options, results):
    """Each pass adds its checks to the results; a pass that breaks off is one failed check."""
    seconds = QUICK_SECONDS if options.quick else options.seconds
    shares = QUICK_SHARES if options.quick else SHARES
    chosen = options.passes or PASSES
    if "selftest" in chosen:
        results += guarded("selftest", selftest.run)
    if "pause" in chosen:
        results += guarded("pause", pause.run)
    if set(chosen) & set(SHARES):
        plain = {}
        results += guarded("plain", lambda: rest_of_plain(plain, options.quick, options.keep))
        for name in SHARES:
            if name in chosen and plain:
                soak = Soak(name, seconds * shares[name], FLIP_BYTES if name == "flip" else 0, plain, options)
                results += guarded(name, soak.run)


def guarded(name, function):
    try:
        return function()
    except (Failure, OSError, subprocess.SubprocessError) as failure:
        print(f"FAIL {name}: {failure}", file=sys.stderr)
        return [{"pass": name, "check": "came to its end", "ok": False, "detail": str(failure)}]


def main():
    options = parse_arguments()
    console.end_by_signals()
    started, results = time.monotonic(), []
    try:
        run_passes(options, results)
    except KeyboardInterrupt:
        results.append({"pass": "all", "check": "not interrupted", "ok": False, "detail": "interrupted"})
    passed = sum(result["ok"] for result in results)
    failed = len(results) - passed + (0 if results else 1)
    if options.json:
        print(json.dumps({"seconds": round(time.monotonic() - started, 1), "checks": results}))
    print(f"{os.uname().release}, {time.monotonic() - started:.0f} s", file=sys.stderr)
    print(f"soak: {passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
