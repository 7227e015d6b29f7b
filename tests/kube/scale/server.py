"""What clients cost the API server, by its own metrics, and by the node's device."""

import http.client
import json
import re
from dataclasses import dataclass, fields

from testkit import procfs
from testkit.failure import Failure

LINE = re.compile(r"^(\w+)\{(.*)\} ([0-9.e+]+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')
# Of the kinds that the agent reads.
RESOURCES = ("services", "endpointslices", "nodes")
READS = ("LIST", "WATCH", "GET")


@dataclass(frozen=True)
class Load:
    requests: float = 0
    watch_events: float = 0
    watch_event_bytes: float = 0
    bytes_received: float = 0
    bytes_sent: float = 0
    server_cpu_seconds: float = 0

    def since(self, before):
        return Load(*(getattr(self, field.name) - getattr(before, field.name) for field in fields(self)))

    def figures(self):
        """Bytes are those of the node's device."""
        return {field.name: round(getattr(self, field.name), 2) for field in fields(self)}


def look(testbed, world):
    """Counts so far. The node's device has nothing but the agent's traffic with the API server."""
    plane = testbed.control_plane
    lines = metrics(plane.api)
    node = json.loads(world.namespaces["node"].ip("-s -j link show control"))[0]["stats64"]
    slices = [(name, value) for name, labels, value in lines if "EndpointSlice" in labels.get("kind", "")
              or labels.get("resource") == "endpointslices"]
    return Load(
        requests=sum(value for name, labels, value in lines if name == "apiserver_request_total"
                     and labels.get("resource") in RESOURCES and labels.get("verb") in READS),
        watch_events=sum(value for name, value in slices if name == "apiserver_watch_events_total"),
        watch_event_bytes=sum(value for name, value in slices if name == "apiserver_watch_events_sizes_sum"),
        bytes_received=node["rx"]["bytes"], bytes_sent=node["tx"]["bytes"],
        server_cpu_seconds=procfs.cpu_seconds(plane.api_server.pid))


def metrics(api):
    """(name, labels, value) of each line with labels."""
    status, text = api.send("GET", "/metrics", None, None)
    if status != http.client.OK:
        raise Failure(f"GET /metrics: {status}")
    found = LINE.findall(text.decode())
    return [(name, dict(LABEL.findall(labels)), float(value)) for name, labels, value in found]
