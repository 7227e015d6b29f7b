"""A node that loses its power."""

import time

from cluster import shop
from cluster.cluster import DAEMONSET, NAMESPACE
from cluster.goal import check_share, load
from cluster.witness import Witness
from testkit import wait

PLACE = "reboot"
TAINT = {"key": "sidestep.dev/agent-not-ready", "effect": "NoSchedule"}
BACK_SECONDS = 240


def reboot(cluster, checks):
    """A node loses its power and starts again: capture, policy and rings are in force again, and nothing has started without."""
    cluster.helm_upgrade("agent.networkPolicies=true", "agent.removeTaint=true")
    node = cluster.nodes[0]
    witness = Witness(cluster, PLACE, node)
    pods = witness.add()
    witness.await_running(pods)
    witness.check(checks, pods, "before the reboot")
    thing = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name}}
    # As whoever drains nodes does.
    cluster.api.patch(thing, {"spec": {"taints": [TAINT]}})
    started = time.monotonic()
    before = starts(cluster, node)
    node.reboot([other for other in cluster.nodes if other is not node])
    wait.until(lambda: are_started_again(starts(cluster, node), before), "all to run again", BACK_SECONDS)
    cluster.wait_rollout(DAEMONSET)
    witness.await_running(pods, restarts=1)
    checks.figures["reboot: seconds until all pods ran again"] = time.monotonic() - started
    witness.check(checks, pods, "after the reboot")
    checks.figures["reboot: starts that the CNI plugin refused"] = refusals(cluster)
    wait.until(lambda: TAINT["key"] not in str(cluster.api.get(thing)["spec"].get("taints")), "the taint to be removed", BACK_SECONDS)
    cluster.wait_rollout(shop.deployment())
    seen, before = load(cluster, checks, "requests after the reboot")
    check_share(cluster, checks, seen["bytes"], before, "after the reboot")


def starts(cluster, node):
    """How often each container of Sidestep and of the shop on this node was started again."""
    pods = [pod for namespace in (NAMESPACE, shop.NAMESPACE) for pod in cluster.pods(namespace)]
    return {(pod["metadata"]["name"], state["name"]): state["restartCount"] for pod in pods
            if pod["spec"].get("nodeName") == node.name for state in pod["status"].get("containerStatuses", [])}


def are_started_again(now, before):
    return all(now.get(container, 0) > count for container, count in before.items())


def refusals(cluster):
    events = cluster.api.ask("GET", f"/api/v1/namespaces/{PLACE}/events")["items"]
    return sum(event.get("count") or 1 for event in events if event["reason"] == "FailedCreatePodSandBox")


CASES = (reboot,)
