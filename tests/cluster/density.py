"""As many pods on a node as a kubelet takes by default."""

import json
import re
import time

from cluster import shop
from cluster.cluster import NAMESPACE
from cluster.goal import ENROLLED, check_share, load
from testkit import wait

# The kubelet's own default, those of Sidestep and of others included.
PODS = 110
# Of a pod's start, by what Sidestep adds to it.
MOST_SECONDS = 0.05
END_SECONDS = 480
FEW = 10
PARTS = ("agent", "broker", "nri", "rings", "cni")
MIB = 1 << 20


def many_pods(cluster, checks):
    """110 pods on each node: what a pod's start takes longer with rings than without, and the memory of Sidestep's parts."""
    others = len(cluster.api.ask("GET", "/api/v1/pods")["items"])
    count = PODS * len(cluster.nodes) - others
    seconds = {}
    # The first pods of all are slower.
    start(cluster, "first", FEW, None)
    for name, labels in (("without", None), ("with", ENROLLED)):
        seconds[name] = start(cluster, name, count, labels, lambda: check_dense(cluster, checks, name))
    for name, value in seconds.items():
        checks.figures[f"many_pods: seconds for each of {count} pods {name} rings"] = value
    added = seconds["with"] - seconds["without"]
    checks.figures["many_pods: seconds added to a pod's start by rings"] = added
    checks.check(added <= MOST_SECONDS, f"many_pods: a pod's start takes {added:.3f} s longer with rings")


def start(cluster, name, count, labels, while_there=lambda: None):
    """Seconds for each of so many pods, which are gone when this returns."""
    pods = shop.idle(f"dense-{name}", count, labels)
    started = time.monotonic()
    cluster.api.create(pods)
    cluster.wait_rollout(pods, END_SECONDS)
    seconds = (time.monotonic() - started) / count
    while_there()
    cluster.api.delete(pods)
    wait.until(lambda: not cluster.api.list("Pod", shop.NAMESPACE, f"app=dense-{name}"), "the pods to end", END_SECONDS)
    return seconds


def check_dense(cluster, checks, name):
    """While they all run: requests go on by ring; the memory of each part."""
    seen, before = load(cluster, checks, f"requests beside many pods {name} rings")
    check_share(cluster, checks, seen["bytes"], before, f"beside many pods {name} rings")
    for node in cluster.nodes:
        for part in PARTS:
            checks.figures[f"many_pods: memory of {part} on {node.name}, pods {name} rings, MiB"] = memory(node, part) / MIB


def memory(node, part):
    """Resident bytes of a container's first process."""
    pid = json.loads(node.crictl("inspect", node.container(NAMESPACE, part)))["info"]["pid"]
    return int(re.search(r"VmRSS:\s+(\d+) kB", node.machine.run("cat", f"/proc/{pid}/status")).group(1)) << 10


CASES = (many_pods,)
