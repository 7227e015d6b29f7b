"""A hostile pod: what its root can try against the node's broker, agent and library, and against other pods."""

import hashlib
import json
import subprocess
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from cluster import python, shop
from cluster.cluster import AGENT, DAEMONSET, NAMESPACE, PLUGIN, RINGS
from cluster.faults import kill_container
from cluster.goal import ENROLLED, Requests, check_share, load, restart_web
from cluster.workloads import ask_redis
from kube.worlds import Prober
from testkit import wait
from testkit.commands import ENV
from testkit.failure import Failure

PEERS = Path(__file__).resolve().parent / "peers"
# What the attackers share.
ATTEMPTS = PEERS / "attempts.py"
ATTACKER, PLACE = "attacker", "hostile"
ATTACK_SECONDS = 120
GARBAGE_SECONDS, LINKS_SECONDS = 15, 25
# Less than the chart's, since containers here may have few descriptors: what a pod takes with them must be too much without a quota.
BROKER_MEMORY = "192Mi"
START_SECONDS, SERVED_SECONDS = 60, 60


def hostile(cluster, checks):
    """A pod whose root attacks: its neighbours' requests and rings go on, and nothing of Sidestep ends."""
    cluster.helm_upgrade(f"broker.resources.limits.memory={BROKER_MEMORY}")
    cluster.bring(python.image(ATTACKER, [PEERS / "attacker.py", ATTEMPTS]))
    node = cluster.nodes[0]
    pod = start_attacker(cluster)
    library = library_of(node)
    with undisturbed(cluster, checks, "while a pod sends anything"):
        try_all(checks, node, pod)
    with held(node, pod, "locks") as seen:
        checks.check(seen["locked"] > 0, f"hostile: nothing to lock: {seen}")
        kill_container(cluster, node, "broker")
        restart_web(cluster)
        neighbours(cluster, checks, "after the broker was killed while a pod holds locks")
    before = running(node)
    for words in quotas(cluster, node):
        requests = undisturbed(cluster, checks, f"while a pod takes {words[0]}")
        with requests, held(node, pod, *words) as seen:
            checks.figures |= {f"hostile: {words[0]}: {name}": float(value) for name, value in flat(seen)}
            requests.close()
            started = time.monotonic()
            wait.until(lambda: is_served(cluster, node), f"{words[0]}: the broker's metrics", SERVED_SECONDS)
            checks.figures[f"hostile: {words[0]}: seconds until the broker's metrics were served"] = time.monotonic() - started
            neighbours(cluster, checks, f"while a pod attacks by {words[0]}")
            check_alive(cluster, checks, node, before, words[0])
    checks.check(library_of(node) == library, "hostile: the library is another one")
    cluster.api.delete(pod)
    wait.until(lambda: not cluster.pods(PLACE), "the attacker to end", START_SECONDS)
    neighbours(cluster, checks, "after the attacks")


def try_all(checks, node, pod):
    seen = attack(node, pod, "files")
    nothing = {"possible": [], "beside the broker's socket": [], "processes with the operator's directory": []}
    checks.check(seen == nothing, f"hostile: files: {seen}")
    seen = attack(node, pod, "commands")
    checks.check(seen == {"obeyed": []}, f"hostile: the broker obeyed a pod: {seen}")
    seen = attack(node, pod, "garbage", GARBAGE_SECONDS)
    checks.check(seen["sent"] > 1000, f"hostile: garbage: {seen}")


def undisturbed(cluster, checks, when):
    """A neighbour's connections that are there before and go on: until this is closed."""
    requests = Requests(cluster, cluster.nodes[0])

    def close():
        seen = requests.stop()
        checks.check(seen["requests"] > 0 and not seen["failures"], f"hostile: a neighbour's connections {when}: {seen}")
        checks.figures[f"hostile: the slowest request {when}, seconds"] = seen["slowest"]
    stack = ExitStack()
    stack.callback(close)
    return stack


def quotas(cluster, node):
    """Attacks that take all that there is, and stay."""
    yield ("members",)
    yield "links", LINKS_SECONDS
    yield "silence", node.address, AGENT, RINGS, PLUGIN
    yield "calls", cluster.address(shop.NAMESPACE), shop.SERVICE_PORT


def start_attacker(cluster):
    cluster.api.create(shop.namespace(PLACE, "privileged"))
    return start_pod(cluster, pod_of(ATTACKER, PLACE, ATTACKER, cluster.nodes[0], ENROLLED))


def pod_of(program, namespace, name, node, labels):
    """Its one container has the name of the image, and of the program in it."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "spec": {"containers": [idle_container(program, program)], "nodeName": node.name, "terminationGracePeriodSeconds": 1}}


def idle_container(name, image, **more):
    return {"name": name, "image": f"sidestep.test/{image}:1", "imagePullPolicy": "Never",
            "command": ["python3", "-c", "import signal; signal.pause()"], **more}


def start_pod(cluster, pod):
    cluster.api.create(pod)
    name = pod["metadata"]["name"]
    wait.until(lambda: cluster.api.get(pod)["status"].get("phase") == "Running", f"{name} to run", START_SECONDS)
    return pod


def command(node, pod, *words):
    program, metadata = pod["spec"]["containers"][0]["name"], pod["metadata"]
    identity = wait.until(lambda: node.container(metadata["namespace"], program, metadata["name"]), f"the container of {program}",
                          START_SECONDS)
    return node.inside(identity, "python3", f"/srv/{program}.py", *map(str, words))


def attack(node, pod, *words):
    done = subprocess.run(command(node, pod, *words), env=ENV, capture_output=True, text=True, timeout=ATTACK_SECONDS,
                          stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise Failure(f"{words[0]}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


@contextmanager
def held(node, pod, *words):
    """The attacker keeps what it has taken."""
    attacker = Prober(words[0], command(node, pod, *words), ENV)
    try:
        yield attacker.answer()
    finally:
        attacker.stop()


def is_served(cluster, node):
    with suppress(OSError):
        return cluster.metrics(node, RINGS)
    return None


def flat(seen, prefix=""):
    for name, value in seen.items():
        yield from flat(value, f"{prefix}{name} ") if isinstance(value, dict) else [(f"{prefix}{name}", value)]


def neighbours(cluster, checks, when):
    """Old processes and new ones, with new connections: all by ring."""
    seen, before = load(cluster, checks, f"requests {when}")
    check_share(cluster, checks, seen["bytes"], before, when)
    ask_redis(cluster, checks, when)


def running(node):
    """Sidestep's containers: another identity means that one has ended."""
    return {name: node.container(NAMESPACE, name) for name in ("agent", "broker", "rings", "nri", "cni")}


def check_alive(cluster, checks, node, before, what):
    checks.check(running(node) == before, f"hostile: {what}: containers were {before}, are {running(node)}: "
                                          f"{cluster.describe(NAMESPACE)}")
    checks.check(cluster.api.get(DAEMONSET)["status"]["numberReady"] == len(cluster.nodes), f"hostile: {what}: a pod is not ready")


def library_of(node):
    """The content of every version of the library on the node."""
    found = node.machine.path("/usr/lib/sidestep").glob("*/libsidestep.so")
    return {file.parent.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in found}


CASES = (hostile,)
