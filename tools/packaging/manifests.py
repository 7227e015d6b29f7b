"""The chart with its default values, as plain manifests for `kubectl apply`."""

import os

from .programs import ROOT, Missing, run

CHART = ROOT / "dist" / "chart" / "sidestep"
FILE = ROOT / "dist" / "manifests" / "sidestep.yaml"
NAMESPACE = "sidestep"
HELM = ROOT / "target" / "lab-tools" / "bin" / "helm"
HEAD = f"""\
# Made by `make manifests` from dist/chart/sidestep with its default values; a test compares the two. kubectl apply -f this file
# installs Sidestep into the namespace {NAMESPACE}. docs/install.md says how to remove it without a trace.
apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
  labels:
    # Agent, broker and plugins use directories and the network of the node.
    pod-security.kubernetes.io/enforce: privileged
"""


def render():
    if not HELM.exists():
        raise Missing("no helm: tools/install-deps chart builds it")
    # No hook: nothing runs them without helm.
    words = [HELM, "template", "sidestep", CHART, "--namespace", NAMESPACE, "--no-hooks", "--skip-tests",
             "--kube-version", "1.36.0"]
    made = run(*words, env={**os.environ, "HELM_CONFIG_HOME": "/nonexistent"}).decode()
    without = [line for line in made.splitlines() if "managed-by:" not in line and "helm.sh/chart:" not in line]
    return HEAD + "\n".join(without) + "\n"


def write():
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(render())
    return FILE
