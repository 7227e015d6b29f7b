"""Other programs than the first ones, and many pods."""

import time

from cluster import shop
from cluster.cluster import PLUGIN, RINGS
from cluster.goal import ENROLLED, SENT, check_share, load, wait_share
from testkit import wait

OPEN = "open"
# Bytes of a question and its answer: asker.c.
EXCHANGE = len("PING\r\n") + len("+PONG\r\n")
END_SECONDS = 120
PODS = 30


def musl(cluster, checks):
    """A program of musl, and Redis as a native sidecar, which are two users."""
    ask_redis(cluster, checks, "musl")


def ask_redis(cluster, checks, what):
    before = [cluster.metrics(node, RINGS) for node in cluster.nodes]
    pod = shop.cache()
    cluster.api.create(pod)
    phase = lambda: cluster.api.get(pod)["status"]["phase"]  # noqa: E731 - it is short
    wait.until(lambda: phase() in ("Succeeded", "Failed"), "the pod of musl to end", END_SECONDS)
    checks.check(phase() == "Succeeded", f"{what}: the pod of musl: {phase()}: {cluster.log(pod, 'musl')}")
    checks.check(f"asked {shop.QUESTIONS} times" in cluster.log(pod, "musl"), f"{what}: {cluster.log(pod, 'musl')}")
    wait_share(cluster, checks, EXCHANGE * shop.QUESTIONS, before, SENT, f"{what}: bytes of musl sent")
    cluster.api.delete(pod)
    wait.until(lambda: cluster.api.get(pod) is None, "the pod of musl to be gone", END_SECONDS)


def default_users(cluster, checks):
    """nginx as its package has it: root, whose workers become www-data, with Envoy as a third user."""
    for thing in shop.objects(OPEN, "privileged"):
        cluster.api.create(thing)
    web = shop.with_default_users(shop.deployment(namespace=OPEN, replicas=len(cluster.nodes), labels=ENROLLED))
    cluster.api.create(web)
    cluster.wait_rollout(web)
    seen, before = load(cluster, checks, "requests to nginx with its default users", OPEN)
    check_share(cluster, checks, seen["bytes"], before, "default users")
    cluster.api.delete(web)


def many(cluster, checks):
    """Pods at a time, without and with the label."""
    for name, labels in (("without", None), ("with", ENROLLED)):
        pods = shop.idle(f"idle-{name}", PODS, labels)
        started = time.monotonic()
        cluster.api.create(pods)
        cluster.wait_rollout(pods)
        checks.figures[f"seconds for each of {PODS} pods {name} rings"] = (time.monotonic() - started) / PODS
        cluster.api.delete(pods)
        left = lambda name=name: cluster.api.list("Pod", shop.NAMESPACE, f"app=idle-{name}")  # noqa: E731 - it is short
        wait.until(lambda left=left: not left(), "the pods to end", END_SECONDS)
    metrics = [cluster.metrics(node, PLUGIN) for node in cluster.nodes]
    total, count = (sum(m[f"sidestep_nri_request_seconds_{part}"] for m in metrics) for part in ("sum", "count"))
    checks.figures["seconds for a request of the runtime to the plugin"] = total / count


CASES = (musl, default_users, many)
