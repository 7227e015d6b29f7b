"""Pods that were started while the CNI plugin was not there: they are labelled, or evicted so that their controller starts them anew."""

from cluster import shop
from testkit import wait

LABEL, EVENT = "sidestep.dev/not-admitted", "NotAdmitted"
NAME = "before"
# Of the agent's looks, of which two must agree.
AFTER_SECONDS = 2
DONE_SECONDS = 120


def repair(cluster, checks):
    """A pod from before the CNI plugin gets a label and an Event, and then is evicted; its successor is admitted. No other is touched."""
    cluster.helm_upgrade("cni.enabled=false")
    early = shop.idle(NAME, 1)
    cluster.api.create(early)
    cluster.wait_rollout(early)
    first = only_pod(cluster, NAME)
    others = identities(cluster)
    cluster.helm_upgrade("cni.enabled=true", "cni.repair=label", f"agent.extraArgs={{--repair-after={AFTER_SECONDS}}}")
    wait.until(lambda: is_labelled(cluster.api.get(first)), "the pod to be labelled", DONE_SECONDS)
    wait.until(lambda: is_told(cluster, first), f"an Event {EVENT}", DONE_SECONDS)
    checks.check(identities(cluster) == others and not labelled(cluster) - {first["metadata"]["name"]},
                 f"repair: other pods were labelled: {labelled(cluster)}")
    cluster.helm_upgrade("cni.repair=delete")
    wait.until(lambda: cluster.api.get(first) is None, "the pod to be evicted", DONE_SECONDS)
    cluster.wait_rollout(early)
    second = only_pod(cluster, NAME)
    cluster.helm_upgrade("cni.repair=label")
    # Whatever is left out now would be labelled before this one.
    late = without_plugin(cluster)
    checks.check(not is_labelled(cluster.api.get(second)), "repair: the pod that was started anew is labelled, too")
    checks.check(identities(cluster) == others, f"repair: other pods were evicted: {others}, and now {identities(cluster)}")
    for thing in (early, late):
        cluster.api.delete(thing)


def without_plugin(cluster):
    """One more pod that the plugin has not seen, once it is labelled."""
    cluster.helm_upgrade("cni.enabled=false")
    late = shop.idle("late", 1)
    cluster.api.create(late)
    cluster.wait_rollout(late)
    cluster.helm_upgrade("cni.enabled=true")
    pod = only_pod(cluster, "late")
    wait.until(lambda: is_labelled(cluster.api.get(pod)), "another pod to be labelled", DONE_SECONDS)
    return late


def only_pod(cluster, app):
    """In a list, objects have no kind."""
    [pod] = cluster.pods(shop.NAMESPACE, f"app={app}")
    return {"kind": "Pod", **pod}


def identities(cluster):
    """Of the pods that were there before and are admitted."""
    return sorted(pod["metadata"]["uid"] for pod in cluster.pods(shop.NAMESPACE, "app=web"))


def labelled(cluster):
    return {pod["metadata"]["name"] for pod in cluster.api.ask("GET", f"/api/v1/pods?labelSelector={LABEL}")["items"]}


def is_labelled(pod):
    return pod["metadata"].get("labels", {}).get(LABEL) == "true"


def is_told(cluster, pod):
    events = cluster.api.ask("GET", f"/api/v1/namespaces/{shop.NAMESPACE}/events")["items"]
    return any(event["reason"] == EVENT and event["involvedObject"].get("uid") == pod["metadata"]["uid"] for event in events)


CASES = (repair,)
