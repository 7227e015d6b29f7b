"""What a user does: installs Sidestep with Helm, and labels pods. Each case needs those before it."""

import contextlib
import hashlib
import json
import re
import sys
import time
from pathlib import Path

from cluster import shop
from cluster.cluster import DAEMONSET, NAMESPACE, PLUGIN, RINGS
from testkit import wait
from testkit.commands import ENV
from testkit.failure import Failure
from testkit.process import Process

PEERS = Path(__file__).resolve().parent / "peers"
# So many requests that the bytes before a connection is upgraded, also on a busy machine, are few; so many connections that no pod has
# a single one: rare messages stay on the kernel.
CONNECTIONS, REQUESTS = 16, 12_000
DIGEST = hashlib.sha256(shop.BODY).hexdigest()
SHARE = 0.95
START_SECONDS, END_SECONDS, HEARD_SECONDS = 60, 300, 15
ENROLLED = {shop.LABEL: "enabled"}
SENT, RECEIVED = ('sidestep_{}_bytes_total{{carrier="ring"}}'.format(way) for way in ("sent", "received"))


class Requests:
    """Requests to the Service, from a program of a node: the agent leads it to a pod."""

    def __init__(self, cluster, node, requests=None, namespace=shop.NAMESPACE):
        self.stop_file = node.machine.state / "stop"
        self.stop_file.unlink(missing_ok=True)
        self.log = node.directory / "requests.log"
        self.log.write_text("")
        words = [cluster.address(namespace), shop.SERVICE_PORT, "/body", DIGEST, CONNECTIONS, requests or "-", self.stop_file]
        command = node.machine.around([sys.executable, PEERS / "requester.py", *words])
        self.process = Process("requests", command, self.log, ENV)
        cluster.stack.callback(self.process.destroy)
        self.process.wait_output(re.compile("^(started|{.*)$", re.MULTILINE), START_SECONDS)

    def result(self):
        self.process.wait(END_SECONDS)
        return json.loads(self.log.read_text().splitlines()[-1])

    def stop(self):
        self.stop_file.touch()
        return self.result()


def load(cluster, checks, what, namespace=shop.NAMESPACE):
    """Requests, counted and compared, on the node of the first pod; the bytes by ring meanwhile on all nodes."""
    before = [cluster.metrics(node, RINGS) for node in cluster.nodes]
    seen = Requests(cluster, cluster.nodes[0], REQUESTS, namespace).result()
    checks.check(seen["requests"] == REQUESTS and not seen["failures"], f"{what}: {seen}")
    return seen, before


def ring_bytes(cluster, before, name):
    return sum(cluster.metrics(node, RINGS).get(name, 0) - old.get(name, 0) for node, old in zip(cluster.nodes, before))


def install(cluster, checks):
    """`helm install`: each node has its pod, which is ready."""
    cluster.helm_install()
    cluster.wait_rollout(DAEMONSET)
    status = cluster.api.get(DAEMONSET)["status"]
    checks.check(status["numberReady"] == len(cluster.nodes), f"{status['numberReady']} pods of Sidestep are ready")
    for pod in cluster.pods(NAMESPACE):
        restarts = {c["name"]: c["restartCount"] for c in pod["status"]["containerStatuses"]}
        checks.check(not any(restarts.values()), f"containers were restarted: {restarts}")
    for node in cluster.nodes:
        plugins = [plugin["type"] for plugin in json.loads(node.network_file().read_text())["plugins"]]
        checks.check(plugins == ["ptp", "sidestep-cni"], f"the chain of {node.name} is {plugins}")


def rings(cluster, checks):
    """An application and Envoy in a pod of Pod Security "restricted": 95 % of the bytes between them go by ring."""
    for thing in shop.objects():
        cluster.api.create(thing)
    web = shop.deployment(replicas=len(cluster.nodes), labels=ENROLLED)
    cluster.api.create(web)
    cluster.wait_rollout(web)
    injected = sum(cluster.metrics(node, PLUGIN).get('sidestep_nri_containers_total{outcome="injected",reason=""}', 0)
                   for node in cluster.nodes)
    checks.check(injected >= 2 * len(cluster.nodes), f"{injected:.0f} containers got the library")
    seen, before = load(cluster, checks, "requests to labelled pods")
    check_share(cluster, checks, seen["bytes"], before, "rings")


def check_share(cluster, checks, total, before, what):
    for name, way in ((SENT, "sent"), (RECEIVED, "received")):
        wait_share(cluster, checks, total, before, name, f"{what}: bytes {way}")


def wait_share(cluster, checks, total, before, name, what):
    """Programs tell the broker from time to time what they have counted."""
    share = 0.0

    def is_enough():
        nonlocal share
        share = ring_bytes(cluster, before, name) / total
        return share >= SHARE
    with contextlib.suppress(Failure):
        wait.until(is_enough, "the broker to have heard", HEARD_SECONDS)
    checks.figures[f"{what} by ring, per byte of the answers"] = share
    checks.check(share >= SHARE, lambda: f"{what} by ring: {share:.0%}: {told(cluster)}")


def restart(cluster, web):
    """As `kubectl rollout restart` does it."""
    cluster.api.patch(web, {"spec": {"template": {"metadata": {"annotations": {"restarted": str(time.monotonic())}}}}})
    cluster.wait_rollout(web)


def restart_web(cluster):
    """Connections that are there when a broker ends stay as they are; the next one knows how many they are, and counts their bytes when
    they end: too late for a test, and all at once."""
    restart(cluster, shop.deployment(replicas=len(cluster.nodes), labels=ENROLLED))


def enrol_web(cluster):
    """The label again, if it is not there."""
    web = shop.deployment(replicas=len(cluster.nodes), labels=ENROLLED)
    cluster.api.patch(web, {"spec": {"template": {"metadata": {"labels": ENROLLED}}}})
    cluster.wait_rollout(web)


def told(cluster):
    """What the brokers have counted at all, and why connections stay on the kernel."""
    return [{name: value for name, value in cluster.metrics(node, RINGS).items() if value} for node in cluster.nodes]


def unlabel(cluster, checks):
    """Without the label the pods start without the library, while requests go on."""
    web = shop.deployment(replicas=len(cluster.nodes))
    cluster.api.patch(web, {"spec": {"template": {"metadata": {"labels": {shop.LABEL: None}}}}})
    cluster.wait_rollout(web)
    _, before = load(cluster, checks, "requests to pods without the label")
    checks.check(ring_bytes(cluster, before, SENT) == 0, "pods without the label use rings")


BEFORE = (install, rings)
