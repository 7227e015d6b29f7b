"""Containers of every kind under NRI, and those whose programs take no library: an Event says why."""

import json

from cluster import shop
from cluster.cluster import RINGS
from cluster.goal import ENROLLED, SENT, wait_share
from cluster.workloads import EXCHANGE
from testkit import wait

BROKER = "/run/sidestep/member/broker"
END_SECONDS, EVENT_SECONDS = 120, 60
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
# By the reason's name: the Event's reason, the command, variables of the container, and how the Event's text begins.
WITHOUT_RINGS = {
    "static": ("RingsNoEffect", ["pause"], {}, "The entrypoint is static"),
    "extra-rights": ("RingsNoEffect", ["setuid", "600"], {}, "The entrypoint's file is setuid"),
    "unknown-libc": ("RingsNoEffect", ["other-libc", "600"], {}, "The entrypoint's C library is neither glibc nor musl"),
    "own-settings": ("RingsLeftOut", ["sleep", "600"], {"SIDESTEP_BROKER": "/tmp/none"}, "The container has settings of Sidestep"),
}


def every_kind(cluster, checks):
    """An ordinary init container, a native sidecar and an ephemeral container: each has the library, and they speak by ring."""
    pod = pod_of_kinds()
    before = [cluster.metrics(node, RINGS) for node in cluster.nodes]
    cluster.api.create(pod)
    check_asker(cluster, checks, pod, "first", "initContainerStatuses", before)
    running = lambda: cluster.api.get(pod)["status"].get("phase") == "Running"  # noqa: E731 - it is short
    wait.until(running, "the pod's container to run", END_SECONDS)
    before = [cluster.metrics(node, RINGS) for node in cluster.nodes]
    place = f"/api/v1/namespaces/{shop.NAMESPACE}/pods/{pod['metadata']['name']}/ephemeralcontainers"
    cluster.api.ask("PATCH", place, {"spec": {"ephemeralContainers": [asker("late")]}}, STRATEGIC_PATCH)
    check_asker(cluster, checks, pod, "late", "ephemeralContainerStatuses", before)
    for name in ("redis", "first", "main", "late"):
        has = variables(cluster, pod, name)
        checks.check(has.get("SIDESTEP_BROKER") == BROKER and has.get("LD_PRELOAD", "").endswith("/libsidestep.so"),
                     f"every_kind: {name} has the variables {has}")
    remove(cluster, pod)


def check_asker(cluster, checks, pod, name, kind, before):
    """It ends well, and its questions and their answers went by ring."""
    state = wait.until(lambda: ended(cluster, pod, name, kind), f"{name} to end", END_SECONDS)
    said = cluster.log(pod, name)
    checks.check(state["exitCode"] == 0 and f"asked {shop.QUESTIONS} times" in said, f"every_kind: {name}: {state}: {said}")
    wait_share(cluster, checks, EXCHANGE * shop.QUESTIONS, before, SENT, f"every_kind: bytes of {name} sent")


def ended(cluster, pod, name, kind):
    states = {status["name"]: status["state"] for status in cluster.api.get(pod)["status"].get(kind, [])}
    return states.get(name, {}).get("terminated")


def variables(cluster, pod, name):
    """As the runtime gave them to the container, which may have ended."""
    node_name = cluster.api.get(pod)["spec"]["nodeName"]
    node = next(node for node in cluster.nodes if node.name == node_name)
    identity = node.container(shop.NAMESPACE, name, pod["metadata"]["name"], is_running=False)
    spec = json.loads(node.crictl("inspect", identity))["info"]["runtimeSpec"]
    return dict(entry.split("=", 1) for entry in spec["process"]["env"])


def pod_of_kinds():
    pod = shop.cache()
    pod["metadata"]["name"] = "kinds"
    pod["spec"]["initContainers"].append(asker("first"))
    pod["spec"]["containers"] = [{**shop.container("redis", ["sleep", "600"], shop.APP_USER, shop.APP_PORT), "name": "main"}]
    return pod


def asker(name):
    """The API server permits no ports in an ephemeral container."""
    made = {**shop.cache()["spec"]["containers"][0], "name": name}
    del made["ports"]
    return made


def no_rings(cluster, checks):
    """A static program, a setuid one, one of an unknown C library, and a container with a broker of its own: each has its Event."""
    pods = {reason: pod_without(reason, command, env) for reason, (_, command, env, _) in WITHOUT_RINGS.items()}
    for pod in pods.values():
        cluster.api.create(pod)
    for reason, (event_reason, _, _, begin) in WITHOUT_RINGS.items():
        name = pods[reason]["metadata"]["name"]
        event = wait.until(lambda name=name: event_of(cluster, name), f"an Event about {name}", EVENT_SECONDS)
        text = event.get("message") or ""
        checks.check(event["reason"] == event_reason, f"no_rings: {name}: {event}")
        checks.check(text.startswith(f"Container app: {begin}") and text.endswith(f"({reason})"), f"no_rings: {name}: {text}")
        where = event["involvedObject"].get("fieldPath")
        checks.check(where == "spec.containers{app}", f"no_rings: {name}: the Event is about {where}")
    for pod in pods.values():
        remove(cluster, pod)


def pod_without(reason, command, env):
    app = {**shop.container("redis", command, shop.APP_USER, shop.APP_PORT), "name": "app",
           "env": [{"name": key, "value": value} for key, value in env.items()]}
    return {"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": f"no-rings-{reason}", "namespace": shop.NAMESPACE, "labels": ENROLLED},
            "spec": {"containers": [app], "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": False}}


def event_of(cluster, name):
    """Sidestep's, about the pod of that name."""
    events = cluster.api.ask("GET", f"/api/v1/namespaces/{shop.NAMESPACE}/events")["items"]
    return next((event for event in events
                 if event["involvedObject"].get("name") == name and event["reason"].startswith("Rings")), None)


def remove(cluster, pod):
    cluster.api.delete(pod)
    wait.until(lambda: cluster.api.get(pod) is None, f"{pod['metadata']['name']} to be gone", END_SECONDS)


# The agent tells few Events at a time: before the many pods of workloads.py.
CASES = (every_kind, no_rings)
