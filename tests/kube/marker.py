"""Tells when a node has taken up everything that was written so far.

Watches keep the order of what they tell. So a Service with an endpoint that are written last are seen last, and who
serves them has seen all that came before. Each family has an endpoint of its own, since kube-proxy has rules for each.
"""

import time

import addresses as at
from model import SERVICE_NAME
from support.failure import Failure

NAMESPACE = "marker"
PORT = 80
POLL_SECONDS = 0.02
# Who does not answer at once is asked again.
PATIENCE_SECONDS = 0.2


class Marker:
    def __init__(self, api):
        self.api = api
        self.number = 0
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})

    def wait(self, worlds, seconds=90):
        """Until all of them know; how many seconds each has taken."""
        clock = time.monotonic()
        service, slices = self.set()
        ips = {6 if ":" in ip else 4: ip for ip in service["spec"]["clusterIPs"]}
        took = {}
        while len(took) < len(worlds):
            for world in worlds:
                if world.kind not in took and self.is_seen(world, ips):
                    took[world.kind] = time.monotonic() - clock
            if time.monotonic() - clock > seconds:
                waiting = ", ".join(world.kind for world in worlds if world.kind not in took)
                raise Failure(f"{waiting}: a Service that was written {seconds} s ago is not served; "
                              f"the logs are in the directories of these worlds")
            time.sleep(POLL_SECONDS)
        for thing in (service, *slices):
            self.api.delete(thing)
        return took

    def set(self):
        self.number += 1
        name = f"m{self.number}"
        metadata = {"name": name, "namespace": NAMESPACE}
        service = self.api.create({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": {"ipFamilyPolicy": "RequireDualStack", "ports": [{"port": PORT, "protocol": "TCP"}]}})
        return service, [self.slice(name, family) for family in (4, 6)]

    def slice(self, service, family):
        return self.api.create({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": f"IPv{family}",
            "metadata": {"name": f"{service}-{family}", "namespace": NAMESPACE, "labels": {SERVICE_NAME: service}},
            "ports": [{"name": "", "port": self.backend_port(), "protocol": "TCP"}],
            "endpoints": [{"addresses": [at.HERE[family][0]]}]})

    def backend_port(self):
        return at.BACKEND_PORTS[self.number % len(at.BACKEND_PORTS)]

    def is_seen(self, world, ips):
        """An address may be one that an earlier marker had: the port tells them apart."""
        probes = [{"how": "tcp", "host": ip, "port": PORT, "times": 1} for ip in ips.values()]
        wanted = [{at.endpoint(at.HERE[family][0], self.backend_port()): 1} for family in ips]
        return world.probe("pod", probes, PATIENCE_SECONDS) == wanted
