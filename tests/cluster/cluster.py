"""A cluster of real programs: a control plane, and nodes that are machines of their own. Sidestep comes by Helm."""

import json
import os
import re
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cluster import build, shop
from cluster.kubelet import Kubelet
from cluster.plane import Plane
from kube.addresses import API_PORT, CONTROL
from testkit import wait
from testkit.commands import run
from testkit.failure import Failure
from testkit.paths import ROOT, TARGET
from testkit.testbed import Testbed

PROGRAMS = ("ip", "nsenter", "unshare", "openssl", "etcd", "gcc", "ldd", "nginx", "bpftool", "musl-gcc",
            "redis-server", "nft")
RELEASE, NAMESPACE = "sidestep", "sidestep"
CHART = ROOT / "dist" / "chart" / "sidestep"
DAEMONSET = {"kind": "DaemonSet", "metadata": {"name": RELEASE, "namespace": NAMESPACE}}
ROLLOUT_SECONDS = 180
HELM_SECONDS, IMAGE_SECONDS = 300, 600
# Of the chart: the agent's metrics, the broker's, the NRI plugin's, the webhook's.
AGENT, RINGS, PLUGIN, WEBHOOK = 9464, 9465, 9420, 9421


class Cluster(Testbed):
    def __init__(self, options):
        super().__init__(PROGRAMS, "cluster", options.keep)
        self.node_count = options.nodes
        self.focus = options.focus
        self.built = options.programs or [TARGET / "release"]
        self.nodes = []

    def start(self):
        super().start()
        if not build.HELM.exists():
            raise Failure(f"{build.HELM} is not there: run tools/install-deps cluster")
        # Users of pods come by it to what is in their images.
        self.directory.chmod(0o755)
        images, pause = shop.images(self.directory)
        images["sidestep.tar"] = self.sidestep_image()
        self.plane = Plane(self.directory, build.BINARIES, self.env)
        self.stack.callback(self.plane.stop)
        self.plane.start()
        self.api = self.plane.api
        for number in range(1, self.node_count + 1):
            self.nodes.append(Kubelet(self.plane, number, self.directory, pause, images))
            self.stack.callback(self.nodes[-1].remove)
        with ThreadPoolExecutor() as threads:
            list(threads.map(Kubelet.start, self.nodes))
        for node in self.nodes:
            for other in self.nodes:
                if other is not node:
                    node.reach(other)
            node.wait_ready()

    def bring(self, image):
        """An image that only some cases need, to all nodes."""
        archive = self.directory / f"{image.name.partition('/')[2].partition(':')[0]}.tar"
        if not archive.exists():
            image.write(archive)
            for node in self.nodes:
                node.bring(archive)

    def sidestep_image(self, built=None, version=None):
        """As it is shipped. `version`: another one than the workspace's."""
        programs = [word for directory in built or self.built for word in ("--programs", directory)]
        command = [sys.executable, ROOT / "tools" / "package", "image", *programs,
                   "--output", self.directory / f"image{version or ''}", *(["--version", version] if version else [])]
        said = run(*command, seconds=IMAGE_SECONDS)
        return Path(said.split()[0])

    # --- Helm -------------------------------------------------------------------------------------

    def helm(self, *words, namespace=NAMESPACE):
        env = {**os.environ, "KUBECONFIG": str(self.plane.kubeconfig), "HOME": str(self.directory)}
        env |= {f"HELM_{kind}_HOME": str(self.directory / "helm" / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        command = self.plane.namespace.around([build.HELM, "--namespace", namespace, *words])
        return run(*command, env=env, seconds=HELM_SECONDS)

    def helm_upgrade(self, *values):
        """With these values besides those that the release has."""
        words = [word for value in values for word in ("--set", value)]
        self.helm("upgrade", RELEASE, CHART, "--reuse-values", *words, "--wait", "--timeout", f"{ROLLOUT_SECONDS}s")
        self.wait_rollout(DAEMONSET)

    def helm_install(self, *values):
        """As docs/install.md has it, with the values of a cluster whose nodes have cgroup v2 beside v1, and no kube-proxy."""
        values = ("image.repository=localhost/sidestep", f"agent.apiServer.host={CONTROL}", f"agent.apiServer.port={API_PORT}",
                  "hostPaths.cgroup=/sys/fs/cgroup/unified", "cni.enabled=true", *values)
        words = [word for value in values for word in ("--set", value)]
        return self.helm("install", RELEASE, CHART, "--create-namespace", *words, "--wait", "--timeout", f"{ROLLOUT_SECONDS}s")

    # --- objects ----------------------------------------------------------------------------------

    def wait_rollout(self, thing, seconds=ROLLOUT_SECONDS):
        """Until the object's pods are as its template has them, ready, and no other is left."""
        name = thing["metadata"]["name"]
        try:
            wait.until(lambda: is_rolled_out(self.api.get(thing)), f"the pods of {name} to be ready", seconds)
        except Failure as failure:
            raise Failure(f"{failure}\n{self.describe(thing['metadata']['namespace'])}") from None

    def pods(self, namespace, selector=""):
        return [pod for pod in self.api.list("Pod", namespace, selector) if "deletionTimestamp" not in pod["metadata"]]

    def describe(self, namespace):
        """Why pods are not ready."""
        lines = []
        for pod in self.api.list("Pod", namespace):
            status = pod["status"]
            states = [f"{c['name']}: {json.dumps(c['state'])[:300]}"
                      for c in status.get("initContainerStatuses", []) + status.get("containerStatuses", []) if not c["ready"]]
            lines.append(f"{pod['metadata']['name']}: {status.get('phase')}: {'; '.join(states)}")
        events = self.api.ask("GET", f"/api/v1/namespaces/{namespace}/events")["items"]
        warnings = [f"{e['involvedObject']['name']}: {e['reason']}: {(e.get('message') or '')[:400]}"
                    for e in events if e["type"] == "Warning"]
        return "\n".join(lines + warnings[-10:])

    def describe_all(self):
        try:
            return "\n".join(self.describe(namespace) for namespace in (NAMESPACE, shop.NAMESPACE))
        except (Failure, OSError) as failure:
            return f"nobody tells why: {failure}"

    def address(self, namespace):
        """Of the Service there."""
        return self.api.get({"kind": "Service", "metadata": {"name": "web", "namespace": namespace}})["spec"]["clusterIP"]

    def log(self, pod, container):
        place = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}/log?container={container}"
        return self.api.send("GET", place, None, None)[1].decode(errors="replace")

    # --- metrics ----------------------------------------------------------------------------------

    def metrics(self, node, port):
        return self.metrics_at(node.address, port)

    def metrics_at(self, address, port):
        """What Prometheus would read there: values by name and labels."""
        def read():
            with urllib.request.urlopen(f"http://{address}:{port}/metrics", timeout=10) as answer:
                return answer.read().decode()
        text = self.plane.namespace.call(read)
        return {name: float(value) for name, value in re.findall(r"^(\S+) ([0-9.e+]+)$", text, re.MULTILINE)}


def is_rolled_out(thing):
    if thing is None:
        return False
    status, generation = thing.get("status", {}), thing["metadata"]["generation"]
    if status.get("observedGeneration") != generation:
        return False
    if thing["kind"] == "DaemonSet":
        wanted = status["desiredNumberScheduled"]
        return wanted > 0 and status.get("updatedNumberScheduled") == status.get("numberReady") == wanted
    wanted = thing["spec"]["replicas"]
    return status.get("updatedReplicas") == status.get("readyReplicas") == status.get("replicas") == wanted
