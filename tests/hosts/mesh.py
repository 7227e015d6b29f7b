"""Connections of pods under policy, of captured pods, and to Services. The stack gives a connection back by connect(2) on the pod's own
socket, which the agent's programs see."""

import subprocess

from hosts.cases import exchanged, must_have_taken
from hosts.node import GovernedPod, Node
from hosts.registry import SLOW, case
from hosts.world import PORT
from testkit.failure import Failure
from testkit.wait import until

LASTING = ("--connections", "4", "--rounds", "7000", "--pause", "1")
CLOSED = "apiVersion: sidestep.dev/v1\nkind: Policy\nmetadata: {name: closed, namespace: shop}\n" \
         "spec:\n  default: {ingress: deny, egress: deny}\n"
SERVICE = """apiVersion: v1
kind: Service
metadata: {{name: web, namespace: default}}
spec: {{clusterIP: {vip}, ports: [{{port: {port}}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: web-1, namespace: default, labels: {{kubernetes.io/service-name: web}}}}
addressType: IPv4
ports: [{{port: {port}}}]
endpoints: [{{addresses: [{backend}]}}]
"""
VIP = "10.96.0.1"
OTHER_PORT = 8099


def reaches(caller, address, port=PORT):
    return subprocess.run(caller.around(["bash", "-c", f"exec 3<>/dev/tcp/{address}/{port}"]), capture_output=True).returncode == 0


def carried(host, carrier):
    """Number of connections that go by this carrier both ways."""
    return sum(all(way["carrier"] == carrier for way in one["directions"]) for one in host.status()["connections"])


def sent_back_and_forth(host, carrier, number):
    """All connections go to the kernel, and come back to their carrier."""
    host.command("detach", "--all")
    until(lambda: not carried(host, carrier), f"no connection by {carrier}", 10)
    host.command("attach", "--all")
    until(lambda: carried(host, carrier) >= number, f"connections by {carrier} again", 20)


@case(part=SLOW)
def policies_leave_established_connections(hosts, seed):
    """By each carrier the same: a new connection is denied, and those that are established go on, also on their way back. Pods of one host
    have rings although a stack runs."""
    node = Node(hosts, hosts.server)
    pod, neighbour = (GovernedPod(node, hosts.client, name, number) for number, name in enumerate(("pod", "neighbour"), 1))
    node.start()
    for carrier, caller in ("kernel", hosts.client), ("ring", neighbour), ("stack", hosts.client):
        if carrier == "ring":
            hosts.server.start_stack("--broker", node.broker)

        def close(carrier=carrier, caller=caller):
            if carrier != "kernel":
                until(lambda: carried(pod, carrier) >= 4, f"connections by {carrier}", 20)
            if carrier == "ring" and carried(pod, "stack"):
                raise Failure("the stack has taken a connection between pods of one host")
            node.tell("closed", CLOSED)
            until(lambda: not reaches(caller, pod.addresses[4]), "the policy to be in force", 10)
            if carrier != "kernel":
                sent_back_and_forth(pod, carrier, 4)

        # It begins once the server is reached: the last policy is forgotten then.
        exchanged(hosts, *LASTING, "--seed", seed, client=caller, server=pod, meanwhile=close)
        node.forget("closed")
    must_have_taken(hosts.server, 8)


@case(part=SLOW)
def services_that_pods_dial(hosts, seed):
    """The program sees the Service as its peer, the wire the backend. No give-back chooses another backend."""
    node = Node(hosts, hosts.client)
    pod = GovernedPod(node, hosts.server, "pod")
    node.tell("web", SERVICE.format(vip=VIP, port=PORT, backend=hosts.server.addresses[4]))
    node.start()
    hosts.client.start_stack("--broker", node.broker)
    hosts.server.start_stack()

    def send_back_and_forth():
        until(lambda: carried(pod, "stack") >= 4, "connections by the stack", 20)
        # Connections that are made from now on would not reach the program.
        node.tell("web", SERVICE.format(vip=VIP, port=PORT, backend="10.9.0.99"))
        for _ in range(2):
            sent_back_and_forth(pod, "stack", 4)

    exchanged(hosts, *LASTING, "--seed", seed, client=pod, dialled=VIP, meanwhile=send_back_and_forth)
    must_have_taken(hosts.client, 12)
    must_have_taken(hosts.server, 4)


@case(part=SLOW)
def captured_pods(hosts, seed):
    """A pod's program has accepted connections at a port that is not captured, and all that it dials is. No give-back is a dial."""
    node = Node(hosts, hosts.server)
    rules = {"includeOutboundIPRanges": "*", "excludeInboundPorts": str(PORT)}
    pod = GovernedPod(node, hosts.client, "pod", rules=rules)
    node.start()
    hosts.server.start_stack("--broker", node.broker)
    listener = hosts.client.process("listener", ["python3", "-m", "http.server", OTHER_PORT])
    until(lambda: reaches(hosts.server, hosts.client.addresses[4], OTHER_PORT), "a server", 20, listener.must_run)

    def send_back_and_forth():
        until(lambda: carried(pod, "stack") >= 4, "connections by the stack", 20)
        if reaches(pod, hosts.client.addresses[4], OTHER_PORT):
            raise Failure("the pod is not captured: no proxy runs, and it has reached somebody")
        sent_back_and_forth(pod, "stack", 4)

    exchanged(hosts, *LASTING, "--seed", seed, server=pod, meanwhile=send_back_and_forth)
    must_have_taken(hosts.server, 8)
