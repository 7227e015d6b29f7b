"""The pods of the mesh, where they are, and what they serve. All of them are on one node."""

from dataclasses import dataclass

NAMESPACE = "mesh"
DOMAIN = "cluster.local"

# The node's address among the nodes, and its pods' default gateway.
NODE = "10.251.0.11"
GATEWAY = "169.254.1.1"
# There is no route to this address.
OUTSIDE = "203.0.113.7"

HTTP_PORT = 8080
# Raw TCP: balanced; at a pod's own address, which a headless Service names; and denied to some callers.
TCP_PORT, DIRECT_PORT, GUARDED_PORT = 9000, 9001, 9002
UDP_PORT = 5300
# Bypasses the sidecar, in both directions.
EXCLUDED_PORT = 8125
# Served at 127.0.0.1 only.
LOCAL_PORT = 7070
# No program listens there.
CLOSED_PORT = 8099

# The name server in resolv.conf. No host has this address: sidecars answer.
RESOLVER, DNS_PORT = "10.96.0.10", 53
# User and ports of the sidecar.
PROXY_ID = 1337
OUTBOUND_PORT, INBOUND_PORT = 15001, 15006
STATUS_PORT, HEALTH_PORT, METRICS_PORT = 15020, 15021, 15090
EXCLUDED_INBOUND = (METRICS_PORT, HEALTH_PORT, STATUS_PORT, EXCLUDED_PORT)
# The source address of a sidecar's connections to its program.
PASSTHROUGH = "127.0.0.6"

# User of the programs.
APP_ID = 1000


@dataclass(frozen=True)
class Place:
    """A pod; `app` is its label and its account."""

    name: str
    app: str
    address: str
    is_meshed: bool = True

    @property
    def identity(self):
        return f"spiffe://{principal(self.app)}"


def principal(app):
    return f"{DOMAIN}/ns/{NAMESPACE}/sa/{app}"


CLIENT = Place("client", "client", "10.244.2.2")
WEBS = (Place("web-1", "web", "10.244.2.3"), Place("web-2", "web", "10.244.2.4"))
# Without sidecars: a client and a server.
OUTSIDER = Place("outsider", "outsider", "10.244.2.5", is_meshed=False)
BARE = Place("bare", "bare", "10.244.2.6", is_meshed=False)
PLACES = {place.name: place for place in (CLIENT, *WEBS, OUTSIDER, BARE)}
APPS = tuple(dict.fromkeys(place.app for place in PLACES.values()))
