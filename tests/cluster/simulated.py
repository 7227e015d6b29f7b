"""Nodes and pods that kwok simulates: Kubernetes' own controllers and scheduler work for thousands of pods that are nowhere. The agent of
a real node follows all of it. tests/kube has the figures of a larger cluster, whose objects are written directly."""

import json
import time
from collections import Counter

from cluster import build, shop
from cluster.cluster import NAMESPACE as SIDESTEP
from cluster.density import MIB, memory
from cluster.goal import check_share, load
from cluster.kubelet import says_ready
from testkit import wait
from testkit.commands import run
from testkit.failure import Failure

NODES, NAMESPACES, APPS, REPLICAS = 100, 10, 10, 50
FEWER = 20
KIND = {"sidestep.test/node": "simulated"}
MARK = "kwok.x-k8s.io/node"
# Of pods; no other network of these tests has them.
PODS = "10.160.0.0/11"
START_SECONDS, END_SECONDS, CHANGE_SECONDS = 120, 1200, 60
# Of the chart, by default.
MOST_MIB = 512


def simulated_nodes(cluster, checks):
    """100 simulated nodes with 5,000 pods behind 100 Services: the agent follows, within its memory, and real pods go on by ring."""
    start_kwok(cluster)
    cluster.helm_upgrade("agent.networkPolicies=true")
    before = memories(cluster)
    cluster.api.each(cluster.api.create, [a_node(number) for number in range(NODES)])
    wait.until(lambda: len(ready_nodes(cluster)) == NODES, "the simulated nodes to be ready", START_SECONDS)
    cluster.api.each(cluster.api.create, [shop.namespace(name(number)) for number in range(NAMESPACES)])
    apps = [(name(space), f"app-{app}") for space in range(NAMESPACES) for app in range(APPS)]
    cluster.api.each(cluster.api.create, [thing for app in apps for thing in (a_service(*app), a_policy(*app), a_deployment(*app))])
    for node in cluster.nodes:
        for app in apps:
            await_backends(cluster, node, app, REPLICAS, END_SECONDS)
    follow(cluster, checks, apps[0])
    seen, at_ring = load(cluster, checks, "requests beside simulated pods")
    check_share(cluster, checks, seen["bytes"], at_ring, "beside simulated pods")
    for node, (was, now) in zip(cluster.nodes, zip(before, memories(cluster))):
        checks.figures[f"simulated_nodes: memory of the agent on {node.name} before, MiB"] = was
        checks.figures[f"simulated_nodes: memory of the agent on {node.name} with {NAMESPACES * APPS * REPLICAS} pods, MiB"] = now
        checks.check(now < MOST_MIB, f"simulated_nodes: the agent on {node.name} has {now:.0f} MiB")


def follow(cluster, checks, app):
    """Pods come and go, as the controllers have it."""
    for replicas in (FEWER, REPLICAS):
        started = time.monotonic()
        cluster.api.patch(a_deployment(*app), {"spec": {"replicas": replicas}})
        for node in cluster.nodes:
            await_backends(cluster, node, app, replicas, CHANGE_SECONDS)
        checks.figures[f"simulated_nodes: seconds from the change to {replicas} pods until all agents have it"] = time.monotonic() - started
        checks.check(True, "the agents have followed")


def await_backends(cluster, node, app, wanted, seconds):
    try:
        wait.until(lambda: backends(node, *app) == wanted, f"{node.name} to know {wanted} pods of {app}", seconds)
    except Failure as failure:
        raise Failure(f"{failure}. It knows {backends(node, *app)}; for the API server they are {states(cluster, *app)}") from failure


def states(cluster, namespace, app):
    """How many pods are in each phase, ready or not."""
    pods = cluster.api.ask("GET", f"/api/v1/namespaces/{namespace}/pods?labelSelector=app%3D{app}")["items"]
    return dict(Counter(f"{pod['status'].get('phase')}{', ready' if says_ready(pod) else ''}" for pod in pods))


def start_kwok(cluster):
    stages = cluster.directory / "kwok.yaml"
    stages.write_text("\n---\n".join(file.read_text() for file in build.KWOK.stages()))
    words = [build.BINARIES / "kwok", f"--config={stages}", f"--kubeconfig={cluster.plane.kubeconfig}", f"--cidr={PODS}",
             f"--manage-nodes-with-annotation-selector={MARK}=fake", "--node-ip=10.250.0.1",
             # Without leases the controllers take the nodes for dead after 40 s.
             "--node-lease-duration-seconds=40"]
    cluster.plane.start_process("kwok", words)


def memories(cluster):
    return [memory(node, "agent") / MIB for node in cluster.nodes]


def ready_nodes(cluster):
    nodes = cluster.api.ask("GET", f"/api/v1/nodes?labelSelector={next(iter(KIND))}")["items"]
    return [node for node in nodes if says_ready(node)]


def backends(node, namespace, service):
    """Of the Service's only port, by the agent's own word."""
    words = ("sidestep", "service", "show", f"{namespace}/{service}", "--json")
    ports = json.loads(run(*node.inside(node.container(SIDESTEP, "agent"), *words)))["ports"]
    return len(ports[0].get("backends", ())) if ports else 0


def name(number):
    return f"simulated-{number}"


def a_node(number):
    """Without the labels of a system: no DaemonSet of the cluster wants it. The taint keeps other pods away."""
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"simulated-{number}", "labels": KIND, "annotations": {MARK: "fake"}},
            "spec": {"taints": [{"key": MARK, "effect": "NoSchedule"}]}}


def a_service(namespace, app):
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": app, "namespace": namespace},
            "spec": {"selector": {"app": app}, "ports": [{"port": 80, "targetPort": 8080}]}}


def a_policy(namespace, app):
    """Names peers, so that the agent needs the pods' labels."""
    peer = {"podSelector": {"matchLabels": {"app": app}}, "namespaceSelector": {}}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": app, "namespace": namespace},
            "spec": {"podSelector": {"matchLabels": {"app": app}}, "ingress": [{"from": [peer]}]}}


def a_deployment(namespace, app):
    pod = {"containers": [{"name": "app", "image": "sidestep.test/none:1"}], "nodeSelector": KIND, "automountServiceAccountToken": False,
           "tolerations": [{"key": MARK, "operator": "Exists"}]}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": app, "namespace": namespace},
            "spec": {"replicas": REPLICAS, "selector": {"matchLabels": {"app": app}},
                     "template": {"metadata": {"labels": {"app": app}}, "spec": pod}}}


CASES = (simulated_nodes,)
