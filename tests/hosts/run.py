#!/usr/bin/env python3
"""Two hosts, in network namespaces of their own on one cable: connections between them by the stack.

  tests/hosts/run.py [--filter TEXT] [--seed N] [--stack PATH] [--keep]
  tests/hosts/run.py --more     what takes longer, and nothing else

The last line is `hosts: N passed, N failed`.
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hosts import cases, hostile, impaired  # noqa: F401 - they list their cases
from hosts.registry import CASES
from testkit import console
from testkit.failure import Failure
from testkit.paths import TARGET


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filter", default="")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--stack", type=Path, default=TARGET / "debug" / "sidestep-stack")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--more", action="store_true")
    args = parser.parse_args()
    console.must_be_root("tests/hosts/run.py")
    console.end_by_signals()
    passed, failed = 0, 0
    for case in CASES:
        name = case.function.__name__
        if case.more != args.more or args.filter not in name:
            continue
        began = time.monotonic()
        try:
            with case.bed(args.stack, args.keep) as hosts:
                case.function(hosts, args.seed)
            passed += 1
            print(f"ok    {name} ({time.monotonic() - began:.1f} s)", flush=True)
        except Failure as failure:
            failed += 1
            print(f"FAIL  {name}: {failure}", flush=True)
    print(f"hosts: {passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
