"""Packets from outside of the nodes: nobody but the agent serves NodePorts, since no kube-proxy runs."""

import json
import subprocess
import sys

from cluster import shop
from cluster.goal import CONNECTIONS, DIGEST, PEERS, REQUESTS
from testkit import wait
from testkit.commands import ENV
from testkit.failure import Failure

# Of the chart.
VALUES = ("services.replaceKubeProxy=true", "services.clusterCIDR={10.244.0.0/16}")
NAME, NODE_PORT = "outside", 30080
SERVED_SECONDS, END_SECONDS = 30, 300


def node_port(cluster, checks):
    """With services.replaceKubeProxy a host outside asks each node's NodePort, and has answers from the pods; without it none."""
    service = service_of()
    cluster.api.create(service)
    served = [node.name for node in cluster.nodes if is_served(cluster, node)]
    checks.check(not served, f"node_port: without replaceKubeProxy somebody serves the NodePort at {served}")
    cluster.helm_upgrade(*VALUES)
    for node in cluster.nodes:
        wait.until(lambda node=node: is_served(cluster, node), f"the NodePort of {node.name} to be served", SERVED_SECONDS)
        seen = requests(cluster, node)
        checks.check(seen["requests"] == REQUESTS and not seen["failures"], f"node_port: a host outside asked {node.name}: {seen}")
    cluster.api.delete(service)
    for node in cluster.nodes:
        wait.until(lambda node=node: not is_served(cluster, node), f"the NodePort of {node.name} to end", SERVED_SECONDS)


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


CASES = (node_port,)
