"""What docs/install.md has a user do: label a namespace, restart a Deployment. And a pod in which rings, capture and policy hold
together."""

import json
import urllib.request

from cluster import shop, witness
from cluster.goal import ENROLLED, SENT, check_share, load, restart, ring_bytes
from cluster.witness import Witness
from kube.addresses import CONTROL
from testkit import wait

LABELLED, WHOLE = "labelled", "whole"
# From the agent, for the plugin.
NAMES_FILE = "/run/sidestep/rings/namespaces"
KNOWN_SECONDS, CALL_SECONDS = 30, 60
# Of the sidecar, as Istio has it; and a port for which nobody listens in the pod.
INBOUND, UNSERVED_PORT = 15006, 8081
# Of the bytes, by the containers of the other namespaces: their probes.
FEW = 0.05


def namespace_label(cluster, checks):
    """A namespace gets the label, and its Deployment, which has none, is restarted: 95 % of the bytes go by ring."""
    for thing in shop.objects(LABELLED):
        cluster.api.create(thing)
    web = shop.deployment(namespace=LABELLED, replicas=len(cluster.nodes))
    cluster.api.create(web)
    cluster.wait_rollout(web)
    seen, before = load(cluster, checks, "requests before the namespace has the label", LABELLED)
    share = ring_bytes(cluster, before, SENT) / seen["bytes"]
    checks.check(share < FEW, f"namespace_label: {share:.0%} of the bytes by ring before the namespace has the label")
    label(cluster, LABELLED)
    restart(cluster, web)
    seen, before = load(cluster, checks, "requests after the namespace's label and a restart", LABELLED)
    check_share(cluster, checks, seen["bytes"], before, "namespace_label")
    cluster.api.delete(web)


def label(cluster, name):
    """Until the plugin of each node knows it."""
    cluster.api.patch({"kind": "Namespace", "metadata": {"name": name}}, {"metadata": {"labels": ENROLLED}})
    for node in cluster.nodes:
        wait.until(lambda node=node: name in node.machine.path(NAMES_FILE).read_text().split(),
                   f"{node.name} to know of the label of {name}", KNOWN_SECONDS)


def whole(cluster, checks):
    """In one pod of a labelled namespace: rings between program and sidecar, capture of all calls, and NetworkPolicies."""
    cluster.helm_upgrade("agent.networkPolicies=true")
    outside = Witness(cluster, WHOLE)
    label(cluster, WHOLE)
    callers = outside.add()
    for thing in objects():
        cluster.api.create(thing)
    web = captured_web(len(cluster.nodes), outside.port)
    cluster.api.create(web)
    cluster.wait_rollout(web)
    outside.await_running(callers)
    pods = cluster.pods(WHOLE, "app=web")
    check_inbound(cluster, checks, pods)
    check_outbound(checks, outside, pods)
    outside.check(checks, callers, "whole")
    seen, before = load(cluster, checks, "requests to pods with rings, capture and policies", WHOLE)
    check_share(cluster, checks, seen["bytes"], before, "whole")
    cluster.api.delete(web)
    outside.remove(callers)


def check_inbound(cluster, checks, pods):
    """Any port leads to the sidecar, which alone knows the program, until a policy permits one only."""
    ports = (shop.SIDECAR_PORT, UNSERVED_PORT)
    for pod in pods:
        seen = [ask(cluster, pod, port) for port in ports]
        checks.check(seen == [200, 200], f"whole: a host outside got {seen} at {ports} of a captured pod")
    cluster.api.create(policy("in", {"policyTypes": ["Ingress"], "ingress": [{"ports": [{"port": shop.SIDECAR_PORT}]}]}))
    for pod in pods:
        wait.until(lambda pod=pod: ask(cluster, pod, UNSERVED_PORT) != 200, "the policy to be in force", KNOWN_SECONDS)
        seen = ask(cluster, pod, shop.SIDECAR_PORT)
        checks.check(seen == 200, f"whole: a host outside got {seen} at the port that the policy permits")


def ask(cluster, pod, port):
    """What a host that is no node gets there: a status of HTTP, or an error's name."""
    def read():
        try:
            with urllib.request.urlopen(f"http://{pod['status']['podIP']}:{port}/status", timeout=5) as answer:
                return answer.status
        except OSError as error:
            return type(getattr(error, "reason", error)).__name__
    return cluster.plane.namespace.call(read)


def check_outbound(checks, outside, pods):
    """The program's calls are captured; what the sidecar's user calls is not, and the policy denies it."""
    for pod in pods:
        for name in ("caller", "bypass"):
            wait.until(lambda pod=pod, name=name: outside.outcomes(pod, name), f"whole: {name}: calls", CALL_SECONDS)
        wait.until(lambda pod=pod: outside.outcomes(pod).get("proxy"), f"whole: answers of the sidecar: {outside.outcomes(pod)}",
                   CALL_SECONDS)
        seen = {name: outside.outcomes(pod, name) for name in ("caller", "bypass")}
        checks.check(not any("direct" in outcomes for outcomes in seen.values()), f"whole: calls to a server outside: {seen}")
        checks.check("proxy" not in seen["bypass"], f"whole: what the sidecar's user calls is captured: {seen}")


def objects():
    """Of the namespace of `whole`, which the witness has made: Envoy listens at the port to which capture leads."""
    _, configuration, service = shop.objects(WHOLE)
    envoy = json.loads(configuration["data"]["envoy.json"])
    envoy["static_resources"]["listeners"][0]["address"]["socket_address"]["port_value"] = INBOUND
    configuration["data"]["envoy.json"] = json.dumps(envoy)
    return configuration, service, policy("out", {"policyTypes": ["Egress"], "egress": []})


def policy(name, spec):
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": name, "namespace": WHOLE},
            "spec": {"podSelector": {"matchLabels": {"app": "web"}}, **spec}}


def captured_web(replicas, port):
    """Without a label of its own. `caller` is the program's user, `bypass` the sidecar's."""
    web = shop.deployment(namespace=WHOLE, replicas=replicas)
    template = web["spec"]["template"]
    template["metadata"]["annotations"] = {"sidecar.istio.io/status": "{}"}
    containers = template["spec"]["containers"]
    containers[1]["name"] = "istio-proxy"
    containers += [
        witness.container("outbound", shop.SIDECAR_USER, ["outbound"]),
        *(witness.container(name, user, ["caller", f"{WHOLE}-{name}", CONTROL, str(port)])
          for name, user in (("caller", shop.APP_USER), ("bypass", shop.SIDECAR_USER)))]
    return web


CASES = (namespace_label, whole)
