"""Packets from outside of the nodes: nobody but the agent serves NodePorts, since no kube-proxy runs."""

import json
import socket
import subprocess
import sys

from cluster import shop
from cluster.goal import CONNECTIONS, DIGEST, PEERS, REQUESTS
from kube.addresses import CONTROL
from testkit import wait
from testkit.commands import ENV
from testkit.failure import Failure

# Of the chart.
VALUES = ("services.replaceKubeProxy=true", "services.clusterCIDR={10.244.0.0/16}")
NAME, NODE_PORT = "outside", 30080
SERVED_SECONDS, END_SECONDS, SHORT_SECONDS = 30, 300, 1
# Each goes to any endpoint: with two nodes all go elsewhere once in 65,536 times.
ATTEMPTS = 16


def node_port(cluster, checks):
    """With services.replaceKubeProxy a host outside asks each node's NodePort, and has answers from the pods; without it none. A
    NetworkPolicy of the pods is about that host, and not about the node that its packets come by."""
    service = service_of()
    cluster.api.create(service)
    served = [node.name for node in cluster.nodes if is_served(cluster, node)]
    checks.check(not served, f"node_port: without replaceKubeProxy somebody serves the NodePort at {served}")
    cluster.helm_upgrade(*VALUES, "agent.networkPolicies=true")
    for node in cluster.nodes:
        wait.until(lambda node=node: is_served(cluster, node), f"the NodePort of {node.name} to be served", SERVED_SECONDS)
        seen = requests(cluster, node)
        checks.check(seen["requests"] == REQUESTS and not seen["failures"], f"node_port: a host outside asked {node.name}: {seen}")
    check_policy(cluster, checks)
    cluster.api.delete(service)
    for node in cluster.nodes:
        wait.until(lambda node=node: not is_served(cluster, node), f"the NodePort of {node.name} to end", SERVED_SECONDS)


def check_policy(cluster, checks):
    policy = policy_of([])
    cluster.api.create(policy)
    for node in cluster.nodes:
        wait.until(lambda node=node: not arrivals(cluster, node), f"a policy to close the NodePort of {node.name}", SERVED_SECONDS)
        arrived = arrivals(cluster, node)
        checks.check(not arrived, f"node_port: past a policy {arrived} of {ATTEMPTS} connections arrive by {node.name}")
    cluster.api.patch(policy, policy_of([{"ipBlock": {"cidr": f"{CONTROL}/32"}}]))
    for node in cluster.nodes:
        wait.until(lambda node=node: arrivals(cluster, node), f"a policy to open the NodePort of {node.name}", SERVED_SECONDS)
    cluster.api.delete(policy)
    for node in cluster.nodes:
        wait.until(lambda node=node: arrivals(cluster, node) == ATTEMPTS, f"all connections by {node.name} to arrive", SERVED_SECONDS)


def arrivals(cluster, node):
    """How many connections to the NodePort are accepted."""
    return sum(cluster.plane.namespace.call(lambda: is_accepted(node.address)) for _ in range(ATTEMPTS))


def is_accepted(address):
    try:
        socket.create_connection((address, NODE_PORT), SHORT_SECONDS).close()
    except OSError:
        return False
    return True


def is_served(cluster, node):
    return not requests(cluster, node, 1, 1)["failures"]


def requests(cluster, node, connections=CONNECTIONS, count=REQUESTS):
    """From where the API server is, which is no node and no pod."""
    words = [node.address, NODE_PORT, "/body", DIGEST, connections, count, "/none"]
    command = cluster.plane.namespace.around([sys.executable, PEERS / "requester.py", *words])
    done = subprocess.run(command, env=ENV, capture_output=True, text=True, timeout=END_SECONDS, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise Failure(f"requests to the NodePort of {node.name}: {done.stderr[-1000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def service_of():
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": NAME, "namespace": shop.NAMESPACE},
            "spec": {"type": "NodePort", "selector": {"app": "web"},
                     "ports": [{"port": shop.SERVICE_PORT, "targetPort": shop.SIDECAR_PORT, "nodePort": NODE_PORT}]}}


def policy_of(peers):
    """Lets nobody in but these."""
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": NAME, "namespace": shop.NAMESPACE},
            "spec": {"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"],
                     "ingress": [{"from": peers}] if peers else []}}


CASES = (node_port,)
