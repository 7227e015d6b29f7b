"""The chart upgraded to another release, and back: that of SIDESTEP_TEST_RELEASE. Without it the other one is made of the same
sources: its library, broker and command line speak the next version of the protocol, and its image has another version."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

from cluster.cluster import DAEMONSET, RELEASE, ROLLOUT_SECONDS
from cluster.goal import Requests, check_share, load, restart_web
from cluster.witness import Witness
from faults.releases import next_release

PLACE = "upgrade"
NEXT = "0.1.1-next"
# Of pods that start while Sidestep is replaced.
ROUNDS, PAUSE_SECONDS = 5, 3


def upgrade(cluster, checks):
    """`helm upgrade` to the next release and `helm rollback`, under requests and while pods start: nothing fails, nothing gets around."""
    archive = cluster.sidestep_image([next_release(), *cluster.built], NEXT)
    for node in cluster.nodes:
        node.bring(archive)
    cluster.helm_upgrade("agent.networkPolicies=true")
    witness = Witness(cluster, PLACE)
    pods = witness.add()
    witness.await_running(pods)
    first = libraries(cluster)
    ways = {"upgrade": lambda: cluster.helm_upgrade(f"image.tag={NEXT}"),
            "rollback": lambda: cluster.helm("rollback", RELEASE, "--wait", "--timeout", f"{ROLLOUT_SECONDS}s")}
    for name, change in ways.items():
        pods += change_under_requests(cluster, checks, witness, name, change)
        witness.check(checks, pods, name)
        is_first = libraries(cluster) == first
        checks.check(is_first == (name == "rollback"), f"{name}: new containers get {libraries(cluster)}, first it was {first}")
        # What was paired before goes on by ring, and this broker counts its bytes only when it ends.
        load(cluster, checks, f"{name}: requests until all connections between sidecars and programs are new ones")
        seen, before = load(cluster, checks, f"{name}: requests to pods with the other release's library")
        check_share(cluster, checks, seen["bytes"], before, f"{name}: pods with the other release's library")
        restart_web(cluster)
        seen, before = load(cluster, checks, f"{name}: requests to pods that were started after it")
        check_share(cluster, checks, seen["bytes"], before, f"{name}: pods that were started after it")


def change_under_requests(cluster, checks, witness, name, change):
    """Returns the pods that were started meanwhile."""
    running, started = [Requests(cluster, node) for node in cluster.nodes], []
    with ThreadPoolExecutor() as threads:
        changing = threads.submit(change)
        for number in range(ROUNDS):
            started += witness.add(f"-{name}-{number}")
            time.sleep(PAUSE_SECONDS)
        changing.result()
    cluster.wait_rollout(DAEMONSET)
    witness.await_running(started)
    for requests in running:
        seen = requests.stop()
        checks.check(seen["requests"] > 0 and not seen["failures"], f"{name}: requests on connections that were there: {seen}")
        checks.figures[f"{name}: slowest request, seconds"] = seen["slowest"]
    return started


def libraries(cluster):
    return [json.dumps(node.machine.run("readlink", "/usr/lib/sidestep/current").strip()) for node in cluster.nodes]


CASES = (upgrade,)
