"""Pods instead of slices: the real EndpointSlice controller makes the slices that are balanced."""

from kube import addresses as at
from kube.marker import Marker
from kube.model import SERVICE_NAME
from kube.objects import namespace, service
from testkit import wait
from testkit.console import say

NAMESPACE = "pods"
# Time until the controller has written slices. It waits for further changes before it writes.
SLICE_SECONDS = 60
TIMES = 120


def run(testbed, _options, checks):
    bench = Bench(testbed, checks)
    bench.one_name_two_ports()
    bench.comes_and_goes()
    bench.not_ready_published()


class Bench:
    def __init__(self, testbed, checks):
        self.worlds, self.checks = testbed.worlds, checks
        self.api = testbed.control_plane.api
        self.marker = Marker(self.api, "pods-marker")
        self.api.create(namespace(NAMESPACE))

    def one_name_two_ports(self):
        """A named port with another number in another Pod: the controller makes a slice for each number."""
        web = self.service("named", targetPort="web")
        for number, port in enumerate(at.BACKEND_PORTS[:2]):
            self.pod("named", number, port)
        self.reaches(web, {at.endpoint(at.HERE[4][number], port) for number, port in enumerate(at.BACKEND_PORTS[:2])},
                     "a named port with two numbers")

    def comes_and_goes(self):
        """A Pod becomes ready, then not ready, and is deleted."""
        web, port = self.service("coming", targetPort=at.BACKEND_PORTS[0]), at.BACKEND_PORTS[0]
        first, second = self.pod("coming", 2, port), self.pod("coming", 3, port, is_ready=False)
        names = [at.endpoint(at.HERE[4][number], port) for number in (2, 3)]
        self.reaches(web, {names[0]}, "one Pod that is ready")
        self.set_ready(second, 3, True)
        self.reaches(web, set(names), "two Pods that are ready")
        self.api.delete(first)
        self.reaches(web, {names[1]}, "a Pod that has been deleted")
        self.set_ready(second, 3, False)
        self.reaches(web, {"refused"}, "no Pod that is ready")

    def not_ready_published(self):
        """publishNotReadyAddresses: the controller says they are ready."""
        web = self.service("published", targetPort=at.BACKEND_PORTS[1], publishNotReadyAddresses=True)
        self.pod("published", 1, at.BACKEND_PORTS[1], is_ready=False)
        self.reaches(web, {at.endpoint(at.HERE[4][1], at.BACKEND_PORTS[1])}, "a Pod that is published, not ready")

    # --- steps ------------------------------------------------------------------------------------------------------

    def service(self, name, targetPort, **spec):
        ports = [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": targetPort}]
        return self.api.create(service(NAMESPACE, name, selector={"app": name}, ports=ports, **spec))

    def pod(self, app, number, port, is_ready=True):
        """A Pod that is bound to the node; its status is written by the test, since no kubelet starts containers."""
        made = self.api.create({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": f"{app}-{number}", "namespace": NAMESPACE, "labels": {"app": app}},
            "spec": {"nodeName": at.NODE_NAME, "terminationGracePeriodSeconds": 0, "containers": [
                {"name": "app", "image": "none", "ports": [{"name": "web", "containerPort": port}]}]}})
        self.set_ready(made, number, is_ready)
        return made

    def set_ready(self, pod, number, is_ready):
        ips = [at.HERE[family][number] for family in (4, 6)]
        word = "True" if is_ready else "False"
        self.api.set_status(pod, {
            "phase": "Running", "podIP": ips[0], "podIPs": [{"ip": ip} for ip in ips], "hostIP": at.NODE[4],
            "conditions": [{"type": kind, "status": word} for kind in ("Ready", "ContainersReady")]})

    def reaches(self, web, wanted, what):
        """Waits for the controller, then for the worlds, and then probes them."""
        wait.until(lambda: self.ready_endpoints(web) == wanted - {"refused"}, f"slices for {what}", SLICE_SECONDS)
        self.marker.wait(self.worlds)
        probe = {"how": "tcp", "host": web["spec"]["clusterIPs"][0], "port": 80, "times": TIMES}
        for world in self.worlds:
            seen = set(world.probe("pod", [probe])[0])
            self.checks.check(seen == wanted, f"{world.kind}: {what}: saw {sorted(seen)}, expected {sorted(wanted)}")
        say(f"controllers: {what}")

    def ready_endpoints(self, web):
        found = set()
        for piece in self.api.list("EndpointSlice", NAMESPACE, f"{SERVICE_NAME}={web['metadata']['name']}"):
            for endpoint in piece.get("endpoints") or ():
                if endpoint["conditions"].get("ready") and piece["addressType"] == "IPv4":
                    found |= {at.endpoint(endpoint["addresses"][0], port["port"]) for port in piece["ports"]}
        return found
