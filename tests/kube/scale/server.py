"""What clients cost the API server, by its own metrics, and by the node's device."""

import http.client
import json
import re
from dataclasses import dataclass, fields, replace

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
    list_bytes: float = 0
    watch_events: float = 0
    watch_event_bytes: float = 0
    bytes_received: float = 0
    bytes_sent: float = 0
    server_cpu_seconds: float = 0
    # How many there are. Each is told all events; one is the server's own.
    watches: float = 0

    def since(self, before):
        return replace(Load(*(getattr(self, field.name) - getattr(before, field.name) for field in fields(self))),
                       watches=self.watches)

    def figures(self):
        """Bytes are those of the node's device."""
        return {field.name: round(getattr(self, field.name), 2) for field in fields(self)}


def look(testbed, world):
    """Counts so far. The node's device has nothing but the agent's traffic with the API server."""
    plane = testbed.control_plane
    lines = metrics(plane.api)
    node = json.loads(world.namespaces["node"].ip("-s -j link show control"))[0]["stats64"]

    def total(name, **wanted):
        wanted = {key: values if isinstance(values, tuple) else (values,) for key, values in wanted.items()}
        return sum(value for found, labels, value in lines if found == name
                   and all(labels.get(key) in values for key, values in wanted.items()))

    return Load(
        requests=total("apiserver_request_total", resource=RESOURCES, verb=READS),
        list_bytes=total("apiserver_response_sizes_sum", resource=RESOURCES, verb="LIST"),
        watch_events=total("apiserver_watch_events_total", resource="endpointslices"),
        watch_event_bytes=total("apiserver_watch_events_sizes_sum", resource="endpointslices"),
        watches=total("apiserver_longrunning_requests", resource="endpointslices", verb="WATCH"),
        bytes_received=node["rx"]["bytes"], bytes_sent=node["tx"]["bytes"],
        server_cpu_seconds=procfs.cpu_seconds(plane.api_server.pid))


def metrics(api):
    """(name, labels, value) of each line with labels."""
    status, text = api.send("GET", "/metrics", None, None)
    if status != http.client.OK:
        raise Failure(f"GET /metrics: {status}")
    found = LINE.findall(text.decode())
    return [(name, dict(LABEL.findall(labels)), float(value)) for name, labels, value in found]
