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
END_SECONDS = 300
PARTS = ("agent", "broker", "nri", "rings", "cni")
MIB = 1 << 20


def many_pods(cluster, checks):
    """110 pods on each node: what a pod's start takes longer with rings than without, and the memory of Sidestep's parts."""
    others = len(cluster.api.ask("GET", "/api/v1/pods")["items"])
    count = PODS * len(cluster.nodes) - others
    seconds = {}
    # Twice each, since the first ones of all are slower.
    for turn, (name, labels) in enumerate((("without", None), ("with", ENROLLED)) * 2):
        pods = shop.idle(f"dense-{name}", count, labels)
        started = time.monotonic()
        cluster.api.create(pods)
        cluster.wait_rollout(pods, END_SECONDS)
        seconds[name] = min(seconds.get(name, END_SECONDS), (time.monotonic() - started) / count)
        if turn == 3:
            check_dense(cluster, checks)
        cluster.api.delete(pods)
        wait.until(lambda name=name: not cluster.api.list("Pod", shop.NAMESPACE, f"app=dense-{name}"), "the pods to end", END_SECONDS)
    for name, value in seconds.items():
        checks.figures[f"many_pods: seconds for each of {count} pods {name} rings"] = value
    added = seconds["with"] - seconds["without"]
    checks.figures["many_pods: seconds added to a pod's start by rings"] = added
    checks.check(added <= MOST_SECONDS, f"many_pods: a pod's start takes {added:.3f} s longer with rings")


def check_dense(cluster, checks):
    """While they all run: requests go on by ring; the memory of each part."""
    seen, before = load(cluster, checks, "requests beside many pods")
    check_share(cluster, checks, seen["bytes"], before, "beside many pods")
    for node in cluster.nodes:
        for part in PARTS:
            checks.figures[f"many_pods: memory of {part} on {node.name}, MiB"] = memory(node, part) / MIB


def memory(node, part):
    """Resident bytes of a container's first process."""
    pid = json.loads(node.crictl("inspect", node.container(NAMESPACE, part)))["info"]["pid"]
    return int(re.search(r"VmRSS:\s+(\d+) kB", node.machine.run("cat", f"/proc/{pid}/status")).group(1)) << 10


CASES = (many_pods,)
