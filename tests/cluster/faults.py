"""Deaths in a cluster, under requests: of each part of Sidestep, of the runtime, the kubelet and the API server."""

import json

from cluster import shop
from cluster.cluster import DAEMONSET, NAMESPACE
from cluster.goal import ENROLLED, Requests, load
from testkit import procfs, wait

BACK_SECONDS = 120


def deaths(cluster, checks):
    """Each part is killed and comes back: no request on an existing connection fails, and new ones work after it."""
    web = shop.deployment(replicas=len(cluster.nodes), labels=ENROLLED)
    cluster.api.patch(web, {"spec": {"template": {"metadata": {"labels": ENROLLED}}}})
    cluster.wait_rollout(web)
    node = cluster.nodes[0]
    kills = {name: lambda name=name: kill_container(cluster, node, name) for name in ("agent", "broker", "nri", "cni", "rings")}
    kills |= {"containerd": lambda: restart(node, "containerd"), "kubelet": lambda: restart(node, "kubelet"),
              "the API server": lambda: restart_api_server(cluster)}
    for what, kill in kills.items():
        requests = Requests(cluster, node)
        kill()
        seen = requests.stop()
        checks.figures[f"slowest request while {what} was killed, seconds"] = seen["slowest"]
        checks.check(seen["requests"] > 0 and not seen["failures"], f"{what} was killed: {seen}")
        load(cluster, checks, f"requests after {what} was killed")


def kill_container(cluster, node, name):
    """The kubelet starts it again."""
    identity = wait.until(lambda: node.container(NAMESPACE, name), f"a container {name}")
    pid = json.loads(node.crictl("inspect", identity))["info"]["pid"]
    node.machine.run("sh", "-c", f"kill -9 {pid}")
    wait.until(lambda: node.container(NAMESPACE, name) not in (None, identity), f"{name} to be started again", BACK_SECONDS)
    cluster.wait_rollout(DAEMONSET, BACK_SECONDS)


def restart(node, role):
    process = getattr(node, role)
    process.destroy()
    wait.until(lambda: not procfs.group_members(process.pid), f"{role} to be gone")
    getattr(node, f"start_{role}")()
    node.wait_ready()


def restart_api_server(cluster):
    cluster.plane.kill_api_server()
    cluster.plane.start_api_server()
    for node in cluster.nodes:
        node.wait_ready()
    cluster.wait_rollout(DAEMONSET, BACK_SECONDS)


CASES = (deaths,)
