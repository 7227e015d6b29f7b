"""Istio's mesh in a real cluster: pods of the kubelet, sidecars by Istio's own injector, STRICT mutual TLS, capture by Sidestep's CNI
plugin, and rings between each program and its sidecar. The calls are those of tests/kube/mesh."""

import json
import subprocess
import sys
from pathlib import Path

from cluster import istiod, python, shop
from cluster.cluster import NAMESPACE as SIDESTEP
from cluster.cluster import RINGS
from cluster.goal import CONNECTIONS, DIGEST, ENROLLED, SENT, wait_share
from kube.mesh import matrix, places, things
from kube.mesh.calls import CALLS
from kube.mesh.istiod import NAME
from kube.mesh.wire import Wire
from kube.worlds import PEERS as CALLERS
from kube.worlds import Prober
from testkit import wait
from testkit.commands import ENV
from testkit.failure import Failure

PEERS = Path(__file__).resolve().parent / "peers"
FILES, FILES_PORT = "files", 8000
PROXY = "istio-proxy"
SERVED = {"http": (places.HTTP_PORT, places.EXCLUDED_PORT), "tcp": (places.TCP_PORT, places.DIRECT_PORT, places.GUARDED_PORT),
          "udp": (places.UDP_PORT,), "local": (places.LOCAL_PORT,)}
REQUESTS = 6_000
START_SECONDS, LOAD_SECONDS = 180, 300
# Of each body's bytes: once from the server to its sidecar, once from the other sidecar to the client.
LEGS = 2


def istio(cluster, checks):
    """54 calls in a mesh of Istio's own charts, STRICT mutual TLS, with rings: each ends as with istio-iptables."""
    mesh(cluster, checks, istiod.install)


def istioctl(cluster, checks):
    """The same in a mesh that `istioctl install` has made. It takes the place of `istio`: one of the two in a run."""
    mesh(cluster, checks, istiod.install_by_istioctl)


def mesh(cluster, checks, install):
    cluster.bring(python.image("app-python", [CALLERS / "app.py", CALLERS / "caller.py", PEERS / "requester.py"]))
    address = install(cluster)
    world = World(cluster, address)
    world.start()
    for place in places.PLACES.values():
        check_injection(checks, world.pods[place.name])
    seen = matrix.run(world)
    for call in CALLS:
        found = seen[call.name]
        checks.check(matrix.is_right(call, found),
                     f"istio: {call.who} calls {call.name}: saw {found}, expected {matrix.expected(call)}")
    checks.figures["istio: calls made"] = len(CALLS)
    by_ring(cluster, checks, world)
    for thing in (*things.services(), *(pod.thing for pod in world.pods.values())):
        cluster.api.delete(thing)


def check_injection(checks, pod):
    """Istio's own check of the capture has run before the program: in the init container that its template adds."""
    spec = pod.now()["spec"]
    names = [container["name"] for container in spec.get("initContainers", [])]
    wanted = ["istio-validation", PROXY] if pod.place.is_meshed else []
    checks.check(names == wanted, f"istio: {pod.place.name}: init containers are {names}, not {wanted}")


def by_ring(cluster, checks, world):
    """Requests from sidecar to sidecar: the bytes between each program and its sidecar."""
    before = [cluster.metrics(node, RINGS) for node in cluster.nodes]
    service = cluster.api.get({"kind": "Service", "metadata": {"name": FILES, "namespace": places.NAMESPACE}})
    words = [service["spec"]["clusterIP"], shop.SERVICE_PORT, "/body", DIGEST, CONNECTIONS, REQUESTS, "/none"]
    command = world.pods[places.CLIENT.name].around("python3", "/srv/requester.py", *words)
    done = subprocess.run(command, env=ENV, capture_output=True, text=True, timeout=LOAD_SECONDS, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise Failure(f"requests in the mesh: {done.stderr[-1000:]}")
    seen = json.loads(done.stdout.splitlines()[-1])
    checks.check(seen["requests"] == REQUESTS and not seen["failures"], f"istio: requests from sidecar to sidecar: {seen}")
    wait_share(cluster, checks, LEGS * seen["bytes"], before, SENT, "istio: bytes between programs and sidecars")


class World:
    """What tests/kube/mesh makes its calls in."""

    kind = "istio"

    def __init__(self, cluster, istiod_address):
        self.cluster, self.control_plane, self.node = cluster, cluster.plane, cluster.nodes[0]
        self.pods = {place.name: Pod(self, place, istiod_address) for place in places.PLACES.values()}
        self.caller = self.wire = None

    def start(self):
        api = self.cluster.api
        made = things.namespace(places.NAMESPACE)
        made["metadata"].setdefault("labels", {})["istio-injection"] = "enabled"
        api.create(made)
        for thing in (*(things.thing("v1", "ServiceAccount", app) for app in places.APPS), *things.services(), *things.policies()):
            api.create(thing)
        for thing in files(self.pods[places.CLIENT.name]):
            api.create(thing)
        for pod in self.pods.values():
            api.create(pod.thing)
        for pod in self.pods.values():
            pod.await_ready()
            pod.caller = self.prober(pod.place.name, pod.around("python3", "/srv/caller.py"))
        self.cluster.wait_rollout({"kind": "Deployment", "metadata": {"name": FILES, "namespace": places.NAMESPACE}})
        self.caller = self.prober("node", self.node.machine.around([sys.executable, CALLERS / "caller.py"]))
        wait.until(self.are_endpoints_known, "EndpointSlices of the pods", START_SECONDS)
        # A pod without a route answers at once.
        self.node.machine.namespace.sysctl("ipv4/icmp_ratelimit", 0)
        # What is asked of programs in containers goes by the runtime's server there.
        self.wire = Wire(self.node.machine.namespace, without=("lo",))

    def prober(self, name, command):
        made = Prober(f"istio/{name}", command, ENV)
        self.cluster.stack.callback(made.stop)
        made.answer()
        return made

    def are_endpoints_known(self):
        pieces = self.cluster.api.list("EndpointSlice", places.NAMESPACE)
        seen = {address for piece in pieces for endpoint in piece.get("endpoints") or ()
                if endpoint["conditions"].get("ready") for address in endpoint["addresses"]}
        return {pod.address() for pod in self.pods.values() if pod.place.app in ("web", "client", "bare")} <= seen

    def address_of(self, place):
        return self.pods[place.name].address()


class Pod:
    """`sidecar`: of a pod that has one; it is this object, too."""

    def __init__(self, world, place, istiod_address):
        self.world, self.place, self.caller = world, place, None
        self.thing = pod_of(place, world.node, istiod_address)
        self.sidecar = self
        self.known = None

    def now(self):
        return self.world.cluster.api.get(self.thing)

    def address(self):
        self.known = self.known or self.now()["status"]["podIP"]
        return self.known

    def await_ready(self):
        try:
            wait.until(self.is_ready, f"{self.place.name} to be ready", START_SECONDS)
        except Failure as failure:
            raise Failure(f"{failure}\n{self.world.cluster.describe(places.NAMESPACE)}\n"
                          f"{self.world.cluster.describe(SIDESTEP)}") from None

    def is_ready(self):
        status = self.now()["status"]
        proxies = [c for c in status.get("initContainerStatuses", []) if c["name"] == PROXY]
        conditions = {c["type"]: c["status"] for c in status.get("conditions", [])}
        return conditions.get("Ready") == "True" and all(c["ready"] and "running" in c["state"] for c in proxies)

    def around(self, *words):
        node = self.world.node
        return node.inside(node.container(places.NAMESPACE, "app", self.place.name), *words)

    def stop(self):
        """Only a kubelet that is away does not start the sidecar again at once."""
        node = self.world.node
        node.kill(node.kubelet)
        node.crictl("stop", "--timeout", "0", node.container(places.NAMESPACE, PROXY, self.place.name))

    def start(self):
        node = self.world.node
        node.start_kubelet()
        wait.until(lambda: node.container(places.NAMESPACE, PROXY, self.place.name), "the sidecar to run again", START_SECONDS)
        # The API server still says what was before.
        wait.until(self.is_restarted, "the kubelet to tell of it", START_SECONDS)

    def is_restarted(self):
        return any(c["name"] == PROXY and c["restartCount"] > 0 for c in self.now()["status"].get("initContainerStatuses", []))


def pod_of(place, node, istiod_address):
    words = [f"{kind}={','.join(map(str, ports))}" for kind, ports in SERVED.items()]
    app = {"name": "app", "image": "sidestep.test/app-python:1", "imagePullPolicy": "Never",
           "command": ["python3", "/srv/app.py", place.name, *words], "securityContext": {"runAsUser": places.APP_ID}}
    labels = {"app": place.app, **ENROLLED} | ({} if place.is_meshed else {"sidecar.istio.io/inject": "false"})
    spec = {"serviceAccountName": place.app, "containers": [app], **surroundings(node, istiod_address)}
    made = things.thing("v1", "Pod", place.name, spec)
    made["metadata"] |= {"labels": labels, "annotations": {
        "traffic.sidecar.istio.io/excludeInboundPorts": str(places.EXCLUDED_PORT)}}
    return made


def surroundings(node, istiod_address):
    """All pods are on one node, which is listened to. No name server runs: the name of istiod's Service is in /etc/hosts."""
    return {"nodeSelector": {"kubernetes.io/hostname": node.name},
            "hostAliases": [{"ip": istiod_address, "hostnames": [NAME]}], "terminationGracePeriodSeconds": 2,
            "automountServiceAccountToken": False}


def files(like):
    """nginx, with a sidecar."""
    app = shop.container("app", ["nginx", "-e", "stderr", "-c", "/etc/nginx-all.conf"], shop.APP_USER, FILES_PORT,
                         volumeMounts=[{"name": "tmp", "mountPath": "/tmp"}])
    spec = {**surroundings(like.world.node, like.thing["spec"]["hostAliases"][0]["ip"]), "containers": [app], "volumes": [{"name": "tmp", "emptyDir": {}}]}
    yield {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": FILES, "namespace": places.NAMESPACE},
           "spec": {"replicas": 1, "selector": {"matchLabels": {"app": FILES}},
                    "template": {"metadata": {"labels": {"app": FILES, **ENROLLED}}, "spec": spec}}}
    yield things.selecting(FILES, FILES, [things.port("http", shop.SERVICE_PORT, FILES_PORT)])


CASES = (istio, istioctl)
