"""Who gets around a proxy or a policy: pods that call a server outside of the nodes all the time, and what that server has seen.

    open      nothing concerns it: its calls arrive
    guarded   a NetworkPolicy denies it everything
    captured  it has a sidecar, which answers in the server's place

The server is reached by the pod network alone. So a call that is made before Sidestep is there arrives as well.
"""

import collections
import itertools
import json
import sys
from pathlib import Path

from cluster import python
from kube.addresses import CONTROL
from testkit import wait
from testkit.commands import ENV
from testkit.process import Process

PEERS = Path(__file__).resolve().parent / "peers"
# Of the server of each witness: several may be there at a time.
PORTS = itertools.count(9999)
OPEN, GUARDED, CAPTURED = "open", "guarded", "captured"
SIDECAR_USER, USER = 1337, 1000
READY_SECONDS = 240
IMAGE = "witness"


class Witness:
    """`namespace`: its own. `node`: where its pods run; None: anywhere. The agent has to enforce NetworkPolicies."""

    def __init__(self, cluster, namespace, node=None):
        self.cluster, self.namespace, self.node = cluster, namespace, node
        self.port = next(PORTS)
        log = cluster.directory / f"{namespace}-witness.log"
        command = cluster.plane.namespace.around([sys.executable, PEERS / "witness.py", "server", CONTROL, self.port])
        self.server = Process("witness", command, log, ENV)
        cluster.stack.callback(self.server.destroy)
        cluster.bring(python.image(IMAGE, [PEERS / "witness.py"]))
        cluster.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        cluster.api.create({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": GUARDED, "namespace": namespace},
            "spec": {"podSelector": {"matchLabels": {"app": GUARDED}}, "policyTypes": ["Egress"], "egress": []}})
        self.pods = []
        # Of open pods. One that is ended while it calls has no time to say its name.
        self.addresses = set()

    def add(self, suffix=""):
        """A pod of each kind."""
        made = [pod_of(self.namespace, kind, suffix, self.port) for kind in (OPEN, GUARDED, CAPTURED)]
        for pod in made:
            if self.node is not None:
                pod["spec"]["nodeName"] = self.node.name
            self.cluster.api.create(pod)
        self.pods += made
        return made

    def remove(self, pods):
        """Until they are gone: they call all the time."""
        for pod in pods:
            self.cluster.api.delete(pod)
        wait.until(lambda: not any(self.cluster.api.get(pod) for pod in pods), f"pods of {self.namespace} to be gone", READY_SECONDS)

    def names(self):
        """The names that callers have given, in turn."""
        return self.server.lines()

    def arrived(self):
        """How many calls the server has had, by kind of pod."""
        silent = {f"silent-{address}" for address in self.addresses}
        return collections.Counter(OPEN if name in silent else name.split("-")[0] for name in self.names())

    def outcomes(self, pod, container="caller"):
        """What came of the calls of this pod's running container, by its own word."""
        lines = self.cluster.log(pod, container).splitlines()
        said = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}
        # In place of a log, the API server may say why there is none.
        return {} if "apiVersion" in said else said

    def await_running(self, pods, restarts=0):
        """Until each pod is ready, and its containers were started so many times again."""
        wait.until(lambda: all(self.is_running(pod, restarts) for pod in pods),
                   f"pods of {self.namespace} to run: {self.cluster.describe(self.namespace)}", READY_SECONDS)
        seen = [self.cluster.api.get(pod) for pod in pods]
        self.addresses |= {pod["status"]["podIP"] for pod in seen if pod["metadata"]["labels"]["app"] == OPEN}

    def is_running(self, pod, restarts):
        states = self.cluster.api.get(pod)["status"].get("containerStatuses", [])
        return bool(states) and all(c["ready"] and c["restartCount"] >= restarts for c in states)

    def check(self, checks, pods, when):
        """Nothing has got around proxy or policy; and calls have been made, which is known from the open pod."""
        for pod in pods:
            kind = pod["metadata"]["labels"]["app"]
            expected = {OPEN: "direct", CAPTURED: "proxy"}.get(kind)
            if expected:
                wait.until(lambda pod=pod, expected=expected: self.outcomes(pod).get(expected), f"{when}: {kind}: calls that are answered: "
                           f"{self.outcomes(pod)}", READY_SECONDS)
            seen = self.outcomes(pod)
            if kind != OPEN:
                checks.check("direct" not in seen, f"{when}: {kind}: {seen}")
        arrived = self.arrived()
        around = {kind: count for kind, count in arrived.items() if kind != OPEN}
        checks.check(arrived[OPEN] > 0 and not around, f"{when}: around proxy or policy: {arrived}")


def pod_of(namespace, kind, suffix, port):
    caller = container("caller", USER, ["caller", f"{kind}-{suffix}", CONTROL, str(port)])
    spec = {"containers": [caller], "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": False}
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"{kind}{suffix}", "namespace": namespace, "labels": {"app": kind}},
            "spec": spec}
    if kind == CAPTURED:
        made["metadata"]["annotations"] = {"sidecar.istio.io/status": "{}"}
        sidecar = container("istio-proxy", SIDECAR_USER, ["proxy", "sidecar"])
        spec["containers"].append(sidecar)
    return made


def container(name, user, words):
    return {"name": name, "image": f"sidestep.test/{IMAGE}:1", "imagePullPolicy": "Never", "command": ["python3", "/srv/witness.py"],
            "args": words, "securityContext": {"runAsUser": user, "runAsGroup": user}}
