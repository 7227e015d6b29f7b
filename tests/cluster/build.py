"""Builds containerd, runc, crictl, kubelet, the scheduler and Kubernetes' own tests from Go modules, beside the programs of tests/kube;
once."""

import re
from pathlib import Path

from kube.build import BINARIES, KUBERNETES, WORK, Istio, Kubernetes, Module
from testkit.paths import TARGET

HERE = Path(__file__).resolve().parent
# Of `tools/install-deps chart`.
HELM = TARGET / "lab-tools" / "bin" / "helm"


class Containerd(Module):
    folder = HERE / "modules" / "containerd"
    source = WORK / "src-containerd"
    stamp = BINARIES / "built-from-containerd"
    programs = {name: f"github.com/containerd/containerd/v2/cmd/{name}"
                for name in ("containerd", "containerd-shim-runc-v2", "ctr")}
    version_line = re.compile(r"^require github\.com/containerd/containerd/v2 (v\d+\.\d+\.\d+)$", re.MULTILINE)

    def constants(self):
        """NRI tells plugins the runtime's version."""
        return {"github.com/containerd/containerd/v2/version.Version": self.version()[0]}


class OlderContainerd(Containerd):
    """Its NRI has no call of its own for containers that start."""

    folder = HERE / "modules" / "older-containerd"
    source = WORK / "src-older-containerd"
    stamp = BINARIES / "built-from-older-containerd"
    programs = {f"older/{name}": package for name, package in Containerd.programs.items()}


class Crictl(Module):
    folder = HERE / "modules" / "crictl"
    source = WORK / "src-crictl"
    stamp = BINARIES / "built-from-crictl"
    programs = {"crictl": "sigs.k8s.io/cri-tools/cmd/crictl"}
    version_line = re.compile(r"^require sigs\.k8s\.io/cri-tools (v\d+\.\d+\.\d+)$", re.MULTILINE)


class Runc(Module):
    """Debian's is too old for pods with users of their own, which need mounts that map them."""

    folder = HERE / "modules" / "runc"
    source = WORK / "src-runc"
    stamp = BINARIES / "built-from-runc"
    programs = {"runc": "github.com/opencontainers/runc"}
    version_line = re.compile(r"^require github\.com/opencontainers/runc (v\d+\.\d+\.\d+)$", re.MULTILINE)
    # It has parts in C, of which libseccomp is one.
    flags = ("-tags", "seccomp")
    variables = {"CGO_ENABLED": "1"}


class Node(Kubernetes):
    """What a cluster that runs containers has more than the one of tests/kube."""

    stamp = BINARIES / "built-from-node"
    programs = {name: f"k8s.io/kubernetes/cmd/{name}" for name in ("kube-scheduler", "kubelet")}


class Kwok(Module):
    """Simulates nodes and their pods."""

    folder = HERE / "modules" / "kwok"
    source = WORK / "src-kwok"
    stamp = BINARIES / "built-from-kwok"
    programs = {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}
    version_line = re.compile(r"^require sigs\.k8s\.io/kwok (v\d+\.\d+\.\d+)$", re.MULTILINE)

    def stages(self):
        """What becomes of a node and of a pod, and when."""
        place = WORK / "go" / "pkg" / "mod" / "sigs.k8s.io" / f"kwok@{self.version()[0]}" / "kustomize" / "stage"
        kinds = (place / "node" / "fast", place / "node" / "heartbeat-with-lease", place / "pod" / "fast")
        return sorted(file for kind in kinds for file in kind.glob("*.yaml") if file.name != "kustomization.yaml")


class EndToEnd(Kubernetes):
    """Kubernetes' own tests of clusters, of the release that runs here: what calls pods, and what answers there."""

    source = WORK / "src-end-to-end"
    stamp = BINARIES / "built-from-end-to-end"
    programs = {"agnhost": "k8s.io/kubernetes/test/images/agnhost", "kubectl": "k8s.io/kubernetes/cmd/kubectl"}
    sums = HERE / "modules" / "end-to-end" / "go.sum"


class EndToEndTests(EndToEnd):
    stamp = BINARIES / "built-from-end-to-end-tests"
    programs = {"e2e.test": "k8s.io/kubernetes/test/e2e"}
    verb = ("test", "-c")


class Istioctl(Istio):
    """Of the release whose istiod runs here."""

    source = WORK / "src-istioctl"
    stamp = BINARIES / "built-from-istioctl"
    programs = {"istioctl": "istio.io/istio/istioctl/cmd/istioctl"}
    files = {}
    sums = HERE / "modules" / "istioctl" / "go.sum"


KWOK, ISTIOCTL = Kwok(), Istioctl()
END_TO_END = (EndToEnd(), EndToEndTests())
MODULES = (Containerd(), Crictl(), Runc())
OLDER_RUNTIME, OLDER_MODULES = BINARIES / "older", (OlderContainerd(), Crictl(), Runc())
CLUSTER_MODULES = (KUBERNETES, *MODULES, Node())
