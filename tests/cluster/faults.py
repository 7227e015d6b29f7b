"""Deaths in a cluster, under requests: of each part of Sidestep, of the runtime, the kubelet and the API server."""

import json
from concurrent.futures import ThreadPoolExecutor

from cluster.cluster import DAEMONSET, NAMESPACE
from cluster.goal import Requests, enrol_web, load
from cluster.witness import Witness
from testkit import procfs, wait

PLACE = "deaths"
BACK_SECONDS = 120
API_SERVER = "the API server"


def deaths(cluster, checks):
    """Each part is killed and comes back: no request on an existing connection fails, and no call gets around a proxy or a policy."""
    cluster.helm_upgrade("agent.networkPolicies=true")
    enrol_web(cluster)
    node = cluster.nodes[0]
    witness = Witness(cluster, PLACE, node)
    pods = witness.add()
    witness.await_running(pods)
    witness.check(checks, pods, "before the deaths")
    kills = {name: lambda name=name: kill_container(cluster, node, name) for name in ("agent", "broker", "nri", "cni", "rings")}
    kills |= {"containerd": lambda: restart(node, "containerd"), "kubelet": lambda: restart(node, "kubelet"),
              API_SERVER: lambda: restart_api_server(cluster)}
    for what, kill in kills.items():
        requests = Requests(cluster, node)
        started = kill_while_pods_start(witness, what, kill)
        seen = requests.stop()
        checks.figures[f"slowest request while {what} was killed, seconds"] = seen["slowest"]
        checks.check(seen["requests"] > 0 and not seen["failures"], f"{what} was killed: {seen}")
        load(cluster, checks, f"requests after {what} was killed")
        witness.await_running(started)
        witness.check(checks, pods + started, f"{what} was killed")
        witness.remove(started)
    witness.remove(pods)


def kill_while_pods_start(witness, what, kill):
    """Returns the pods. The API server has to be told of them before it is killed."""
    suffix = f"-{what.split()[-1].lower()}"
    if what == API_SERVER:
        started = witness.add(suffix)
        kill()
        return started
    with ThreadPoolExecutor() as threads:
        killing = threads.submit(kill)
        started = witness.add(suffix)
        killing.result()
    return started


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
