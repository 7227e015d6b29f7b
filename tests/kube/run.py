#!/usr/bin/env python3
"""Services of a real Kubernetes control plane, as Sidestep and as kube-proxy implement them.

etcd, kube-apiserver, kube-controller-manager and kube-proxy run in network namespaces without a route to the outside,
next to Sidestep's agent, and so does the mesh of Istio. README.md describes the layout and the permitted differences.

  tests/kube/run.py                          everything, against both modes of kube-proxy
  tests/kube/run.py --only semantics --quick one part, briefly
  tests/kube/run.py --seed 7 --mode nftables the random Services of that seed, against one mode
  tests/kube/run.py --only scale             one agent in a cluster of 5,000 nodes: forty minutes; with --quick a tenth of it
  tests/kube/run.py --world twins            kube-proxy alone: tests the tests, needs no build of Sidestep

The last line is `kube: N passed, N failed`.
"""

import argparse
import json
import random
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kube import build, conformance, controllers, feed, mesh, outage, scale, semantics
from kube.checks import Checks
from kube.kube_proxy import MODES
from kube.testbed import Testbed
from testkit import console
from testkit.console import say
from testkit.failure import Failure

# In this order: `feed` is last because it leaves many objects behind.
PARTS = {"conformance": conformance, "semantics": semantics, "controllers": controllers, "mesh": mesh, "outage": outage,
         "feed": feed}
# A part by itself, if it is asked for.
ALONE = {"scale": scale}
SEEDS = 1_000_000


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer and smaller rounds")
    parser.add_argument("--only", action="append", choices=(*PARTS, *ALONE),
                        help="only this part (may be given several times); scale runs by itself")
    parser.add_argument("--seed", type=int, default=random.randrange(SEEDS), help="of the random Services")
    parser.add_argument("--mode", choices=(*MODES, "both"), default="both", help="kube-proxy's mode (default: both)")
    parser.add_argument("--world", choices=("all", "twins"), default="all", help="twins: without Sidestep")
    parser.add_argument("--way", action="append", choices=[way.name for way in mesh.WAYS],
                        help="what steers the mesh (may be given several times; default: each)")
    parser.add_argument("--beside", type=Path, metavar="DIR",
                        help="scale: another build of Sidestep, whose agent takes turns with that of target/release")
    parser.add_argument("--pods", type=int, default=0, metavar="N",
                        help="scale: so many pods, which an agent reads that enforces NetworkPolicies (default: none)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write results and figures there")
    parser.add_argument("--keep", action="store_true", help="keep the logs")
    options = parser.parse_args()
    options.modes = MODES if options.mode == "both" else (options.mode,)
    options.parts = [name for name in (*PARTS, *ALONE) if name in (options.only or PARTS)]
    if len(options.parts) > 1 and ALONE.keys() & options.parts:
        parser.error("scale runs by itself: its objects would be in the way of other parts")
    return options


def run_parts(options, results):
    """A part that raises an error is one failed check; the other parts still run."""
    with Testbed(options) as testbed:
        for name in options.parts:
            results[name] = Checks()
            say(f"{name}: begins")
            try:
                {**PARTS, **ALONE}[name].run(testbed, options, results[name])
                for world in testbed.worlds:
                    world.must_run()
            except (Failure, OSError, subprocess.SubprocessError) as failure:
                results[name].check(False, f"{name}: broken off: {failure}")
            say(f"{name}: {results[name].passed} passed, {len(results[name].failures)} failed")


def write(path, options, results):
    parts = {name: {"passed": part.passed, "failures": part.failures, "figures": part.figures}
             for name, part in results.items()}
    path.write_text(json.dumps({"seed": options.seed, "modes": options.modes, "parts": parts}, indent=1) + "\n")


def main():
    options = parse_arguments()
    console.must_be_root("tests/kube/run.py")
    console.end_by_signals()
    results = {}
    say(f"kube: seed {options.seed}")
    try:
        build.build(say, build.MODULES if "mesh" in options.parts else (build.KUBERNETES,))
        run_parts(options, results)
    except (Failure, OSError, subprocess.SubprocessError) as failure:
        results.setdefault("testbed", Checks()).check(False, f"testbed: {failure}")
    except KeyboardInterrupt:
        results.setdefault("testbed", Checks()).check(False, "interrupted")
    if options.json:
        write(options.json, options, results)
    passed = sum(part.passed for part in results.values())
    failed = sum(len(part.failures) for part in results.values())
    print(f"kube: {passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
