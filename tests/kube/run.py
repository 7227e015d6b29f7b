#!/usr/bin/env python3
"""Services of a real Kubernetes control plane, as Sidestep and as kube-proxy implement them.

etcd, kube-apiserver, kube-controller-manager and kube-proxy run in network namespaces without a way outside, next to
Sidestep's agent, and so does the mesh of Istio. README.md says how it is laid out and where the two differ.

  tests/kube/run.py                          everything, against both modes of kube-proxy
  tests/kube/run.py --only semantics --quick one part, briefly
  tests/kube/run.py --seed 7 --mode nftables the random Services of that seed, against one mode
  tests/kube/run.py --world twins            kube-proxy alone: tests the tests, needs no build of Sidestep

The last line is `kube: N passed, N failed`.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "apps")]

import build  # noqa: E402
import controllers  # noqa: E402
import feed  # noqa: E402
import mesh  # noqa: E402
import outage  # noqa: E402
import semantics  # noqa: E402
from checks import Checks, say  # noqa: E402
from lab import Lab  # noqa: E402
from support.failure import Failure  # noqa: E402
from twin import MODES  # noqa: E402

# In this order: the last one leaves so much behind that it is the last.
PARTS = {"semantics": semantics, "controllers": controllers, "mesh": mesh, "outage": outage, "feed": feed}
SEEDS = 1_000_000


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer and smaller rounds")
    parser.add_argument("--only", action="append", choices=PARTS, help="only this part (may be given several times)")
    parser.add_argument("--seed", type=int, default=random.randrange(SEEDS), help="of the random Services")
    parser.add_argument("--mode", choices=(*MODES, "both"), default="both", help="kube-proxy's mode (default: both)")
    parser.add_argument("--world", choices=("all", "twins"), default="all", help="twins: without Sidestep")
    parser.add_argument("--way", action="append", choices=[way.name for way in mesh.WAYS],
                        help="what steers the mesh (may be given several times; default: each)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write results and figures there")
    parser.add_argument("--keep", action="store_true", help="keep the logs")
    options = parser.parse_args()
    options.modes = MODES if options.mode == "both" else (options.mode,)
    options.parts = [name for name in PARTS if name in (options.only or PARTS)]
    return options


def run_parts(options, results):
    """A part that breaks off is one failed check, and the others run all the same."""
    with Lab(options) as lab:
        for name in options.parts:
            results[name] = Checks()
            say(f"{name}: begins")
            try:
                PARTS[name].run(lab, options, results[name])
                for world in lab.worlds:
                    world.must_run()
            except (Failure, OSError, subprocess.SubprocessError) as failure:
                results[name].check(False, f"{name}: broken off: {failure}")
            say(f"{name}: {results[name].passed} passed, {len(results[name].failures)} failed")


def write(path, options, results):
    parts = {name: {"passed": part.passed, "failures": part.failures, "figures": part.figures}
             for name, part in results.items()}
    path.write_text(json.dumps({"seed": options.seed, "modes": options.modes, "parts": parts}, indent=1) + "\n")


def on_terminate(_signal, _frame):
    # Once: what follows is the clearing up.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def main():
    options = parse_arguments()
    if os.geteuid() != 0:
        sys.exit("tests/kube/run.py: needs root, for network namespaces")
    signal.signal(signal.SIGTERM, on_terminate)
    # A shell lets what it runs in the background ignore SIGINT.
    signal.signal(signal.SIGINT, on_terminate)
    results = {}
    say(f"kube: seed {options.seed}")
    try:
        build.build(say, build.MODULES if "mesh" in options.parts else (build.KUBERNETES,))
        run_parts(options, results)
    except (Failure, OSError, subprocess.SubprocessError) as failure:
        results.setdefault("lab", Checks()).check(False, f"lab: {failure}")
    except KeyboardInterrupt:
        results.setdefault("lab", Checks()).check(False, "interrupted")
    if options.json:
        write(options.json, options, results)
    passed = sum(part.passed for part in results.values())
    failed = sum(len(part.failures) for part in results.values())
    print(f"kube: {passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
