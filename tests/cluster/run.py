#!/usr/bin/env python3
"""Pods of a real containerd and runc, whose containers the plugin changes before they are created.

A node is a network namespace without a route to the outside. Images are made of files of this machine; pods are made through the
runtime's CRI, as a kubelet makes them.

  tests/cluster/run.py                        everything
  tests/cluster/run.py --only by_ring         one case (may be given several times)
  tests/cluster/run.py --keep                 leaves the logs

The last line is `cluster: N passed, N failed`. The first run builds containerd, runc and crictl, which takes ten minutes.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cluster import build, injection
from cluster.catalog import Catalog
from cluster.node import Node
from kube.build import build as build_modules
from kube.checks import Checks
from testkit import console
from testkit.console import say
from testkit.failure import Failure

CASES = {case.__name__: case for case in injection.CASES}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=CASES, help="only this case (may be given several times)")
    parser.add_argument("--release", type=Path, metavar="DIR", help="where sidestep, sidestepd and libsidestep.so are")
    parser.add_argument("--older-runtime", action="store_true", help="with containerd 2.1, which is built first")
    parser.add_argument("--keep", action="store_true", help="keep the logs")
    return parser.parse_args()


def run_cases(options, checks):
    """A case that raises an error is one failed check; the other cases still run."""
    with tempfile.TemporaryDirectory() as directory:
        images = Catalog(Path(directory))
        with Node(images.all, options) as node:
            for name in options.only or CASES:
                say(f"{name}: {CASES[name].__doc__}")
                try:
                    CASES[name](node, images, checks)
                except (Failure, OSError, subprocess.SubprocessError) as failure:
                    checks.check(False, f"{name}: broken off: {failure}")


def main():
    options = parse_arguments()
    console.must_be_root("tests/cluster/run.py")
    console.end_by_signals()
    checks = Checks()
    try:
        build_modules(say, build.OLDER_MODULES if options.older_runtime else build.MODULES)
        run_cases(options, checks)
    except (Failure, OSError, subprocess.SubprocessError) as failure:
        checks.check(False, f"node: {failure}")
    except KeyboardInterrupt:
        checks.check(False, "interrupted")
    for name, value in checks.figures.items():
        say(f"{name}: {value:.6f}")
    print(f"cluster: {checks.passed} passed, {len(checks.failures)} failed")
    return 1 if checks.failures or not checks.passed else 0


if __name__ == "__main__":
    sys.exit(main())
