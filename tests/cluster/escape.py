"""A pod under NetworkPolicy, and a captured one, whose root tries to get around both: by the ways of SECURITY.md that need no mesh."""

import contextlib
import socket

from cluster import python
from cluster.hostile import ATTEMPTS, PEERS, attack, held, idle_container, pod_of, start_pod
from cluster.witness import CAPTURED, GUARDED, OPEN, SIDECAR_USER, Witness
from kube.addresses import CONTROL
from testkit import wait

PLACE, ESCAPER = "escape", "escaper"
FLOOD_SECONDS, ARRIVE_SECONDS = 10, 30
PATIENCE_SECONDS = 2
APP_PORT, PROXY_PORTS = 8080, (15001, 15006)
# Of a pod that nothing concerns; else the same of others would prove nothing.
MUST_ARRIVE = ("tcp", "udp", "connected", "raw", "flood")


def escape(cluster, checks):
    """Raw sockets, foreign sources, namespaces, floods, and a listener in the proxy's place: nothing gets around policy or proxy."""
    cluster.helm_upgrade("agent.networkPolicies=true")
    cluster.bring(python.image(ESCAPER, [PEERS / "escaper.py", ATTEMPTS]))
    node = cluster.nodes[0]
    witness = Witness(cluster, PLACE, node)
    pods = witness.add()
    witness.await_running(pods)
    free, guarded, captured = (start_pod(cluster, escaper_of(kind, node)) for kind in (OPEN, GUARDED, CAPTURED))
    check_guarded(cluster, checks, node, witness, guarded, free)
    check_captured(cluster, checks, node, witness, captured, free)
    witness.check(checks, pods, "escape")
    witness.remove([*pods, free, guarded, captured])


def check_guarded(cluster, checks, node, witness, guarded, free):
    """First the pod under policy. What the open one sends after it arrives, by the same ways."""
    own, other = (cluster.api.get(pod)["status"]["podIP"] for pod in (guarded, free))
    seen = attack(node, guarded, "ways", GUARDED, CONTROL, witness.port, own, other)
    flood = attack(node, guarded, "flood", GUARDED, CONTROL, witness.port, FLOOD_SECONDS)
    checks.figures["escape: datagrams of a flood that the kernel has taken from the pod under policy"] = float(flood["taken"])
    attack(node, free, "ways", OPEN, CONTROL, witness.port, other, own)
    attack(node, free, "flood", OPEN, CONTROL, witness.port, 0.2)
    wanted = {f"{OPEN}-{way}" for way in MUST_ARRIVE}
    wait.until(lambda: wanted <= set(witness.names()), "what the open pod sends to arrive", ARRIVE_SECONDS)
    arrived = sorted({name for name in witness.names() if name.startswith(GUARDED)})
    checks.check(not arrived, f"escape: of the pod under policy {arrived} arrived; it saw {seen}, {flood}")


def check_captured(cluster, checks, node, witness, captured, free):
    """Root listens at the proxy's ports and at the program's, and the proxy does not: nobody is led there, and nobody gets around."""
    with held(node, free, "listen", APP_PORT):
        seen = dial(cluster, free, APP_PORT)
        checks.check(seen == "stranger", f"escape: a host outside got {seen} from a pod that is not captured")
    own, other = (cluster.api.get(pod)["status"]["podIP"] for pod in (captured, free))
    with held(node, captured, "listen", APP_PORT, *PROXY_PORTS):
        seen = dial(cluster, captured, APP_PORT)
        checks.check(seen != "stranger", "escape: a host outside got around the proxy, or to a stranger in its place")
        tried = attack(node, captured, "ways", CAPTURED, CONTROL, witness.port, own, other, "tcp", "namespace")
    arrived = sorted({name for name in witness.names() if name.startswith(CAPTURED)})
    checks.check(not arrived, f"escape: of the captured pod {arrived} arrived; it saw {tried}")


def dial(cluster, pod, port):
    """What answers a host that is no node; None: nobody."""
    address = cluster.api.get(pod)["status"]["podIP"]

    def ask():
        with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=PATIENCE_SECONDS) as connection:
            return connection.recv(100).decode().strip()
        return None
    return cluster.plane.namespace.call(ask)


def escaper_of(kind, node):
    """The witness's policy selects it by its label. The sidecar of the captured one does nothing."""
    pod = pod_of(ESCAPER, PLACE, f"{ESCAPER}-{kind}", node, {"app": kind})
    if kind == CAPTURED:
        pod["metadata"]["annotations"] = {"sidecar.istio.io/status": "{}"}
        user = {"runAsUser": SIDECAR_USER, "runAsGroup": SIDECAR_USER}
        pod["spec"]["containers"].append(idle_container("istio-proxy", ESCAPER, securityContext=user))
    return pod


CASES = (escape,)
