#!/usr/bin/env python3
"""Sidestep in a real cluster, installed with Helm: etcd, kube-apiserver, its controllers, the scheduler, and nodes with kubelet,
containerd and runc, each node in namespaces of its own. Nothing has a route to the outside.

  tests/cluster/kubernetes.py                      everything
  tests/cluster/kubernetes.py --nodes 1            with one node
  tests/cluster/kubernetes.py --until rings        this case and those before it, which it needs
  tests/cluster/kubernetes.py --only hostile       `install`, `rings`, and then this one; several may be given
  tests/cluster/kubernetes.py --injection webhook  containers get the library by the admission webhook
  tests/cluster/kubernetes.py --only policy_conformance --focus TEXT
                                                   those of Kubernetes' own cases that this regular expression finds
  tests/cluster/kubernetes.py --keep               leaves the logs

The last line is `kubernetes: N passed, N failed`. The first run builds the programs, which takes a quarter of an hour.
"""

import argparse
import subprocess
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cluster import (
    build,
    conformance,
    containers,
    density,
    enrolled,
    escape,
    external,
    faults,
    goal,
    hostile,
    istio,
    reboot,
    removal,
    repair,
    simulated,
    upgrade,
    webhook,
    workloads,
)
from cluster.cluster import Cluster
from kube.build import ISTIO
from kube.build import build as build_modules
from kube.checks import Checks
from testkit import console
from testkit.console import say
from testkit.failure import Failure

CASES = {"nri": (*goal.BEFORE, *containers.CASES, *workloads.CASES, *enrolled.CASES, *faults.CASES, *external.CASES, *removal.CASES),
         "webhook": webhook.CASES}
NAMES = sorted({case.__name__ for cases in CASES.values() for case in cases})
# Each needs the cases of goal.BEFORE alone, and is run only when it is asked for.
FURTHER = {case.__name__: case
           for case in (*hostile.CASES, *escape.CASES, *istio.CASES, *reboot.CASES, *upgrade.CASES, *density.CASES,
                        *simulated.CASES, *repair.CASES, *conformance.CASES)}
# What else is built for cases: half an hour each time its version changes.
BUILT = ((istio.CASES, (ISTIO,)), ((istio.istioctl,), (build.ISTIOCTL,)), (simulated.CASES, (build.KWOK,)),
         (conformance.CASES, build.END_TO_END))
EXPECTED = (Failure, OSError, subprocess.SubprocessError)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--until", choices=NAMES, help="the last case")
    parser.add_argument("--only", action="extend", nargs="+", choices=(*NAMES, *FURTHER), metavar="CASE",
                        help=f"after the first two no other than these: also {', '.join(FURTHER)}")
    parser.add_argument("--injection", choices=CASES, default="nri", help="how containers get the library; each has its cases")
    parser.add_argument("--nodes", type=int, default=2, choices=(1, 2), help="how many there are (default: 2)")
    parser.add_argument("--programs", action="append", type=Path, metavar="DIR",
                        help="where the image's programs were built (may be given several times; default: target/release)")
    parser.add_argument("--focus", metavar="TEXT", help="of Kubernetes' own cases no others than these, whatever the case would take")
    parser.add_argument("--keep", action="store_true", help="keep the logs")
    return parser.parse_args()


def chosen(options):
    cases = CASES[options.injection]
    if options.only is None:
        return cases
    known = {case.__name__: case for case in cases} | FURTHER
    return (*cases[:len(goal.BEFORE)], *(known[name] for name in options.only))


def run_cases(options, checks):
    """A case needs those before it, so the first that breaks off is the last."""
    with Cluster(options) as cluster:
        for case in chosen(options):
            name = case.__name__
            say(f"{name}: {case.__doc__}")
            started = time.monotonic()
            try:
                case(cluster, checks)
            except EXPECTED as failure:
                checks.check(False, f"{name}: broken off: {failure}\n{cluster.describe_all()}")
                return
            say(f"{name}: {time.monotonic() - started:.0f} seconds")
            if name == options.until:
                return


def main():
    options = parse_arguments()
    console.must_be_root("tests/cluster/kubernetes.py")
    console.end_by_signals()
    checks = Checks()
    try:
        wanted = set(chosen(options))
        further = [module for cases, modules in BUILT if wanted & set(cases) for module in modules]
        build_modules(say, (*build.CLUSTER_MODULES, *further))
        run_cases(options, checks)
    except EXPECTED as failure:
        checks.check(False, f"cluster: {failure}")
    except KeyboardInterrupt:
        checks.check(False, "interrupted")
    except Exception:  # noqa: BLE001 - it is told, and the closing line as well
        checks.check(False, f"cluster: {traceback.format_exc()}")
    for name, value in checks.figures.items():
        say(f"{name}: {value:.4f}")
    print(f"kubernetes: {checks.passed} passed, {len(checks.failures)} failed")
    return 1 if checks.failures or not checks.passed else 0


if __name__ == "__main__":
    sys.exit(main())
