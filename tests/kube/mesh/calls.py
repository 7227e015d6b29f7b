"""The calls in the mesh, and their expected results."""

from dataclasses import dataclass

from . import places, things
from .places import BARE, CLIENT, OUTSIDER, PASSTHROUGH, WEBS

# Outcomes, in the words of peers/caller.py.
OK, DENIED, NOBODY = "200", "403", "503"
ANSWERED, ENDED, REFUSED, UNREACHABLE = "answered", "ended", "refused", "unreachable"
NODE = "node"
MANY = 40
SOME = 8
BULK = 4 << 20
TOGETHER = 32


@dataclass(frozen=True)
class Call:
    """`to` is a Service, a pod, or an address. The fields from `outcome` on are the expected result."""

    name: str
    who: str
    to: object
    port: int
    kind: str = "http"
    path: str = "/"
    called: str = "web"
    times: int = SOME
    outcome: str = OK
    # The pods that answer: all of them, or one of them.
    by: tuple = ()
    is_one: bool = False
    # The caller's address as the program sees it.
    source: str = PASSTHROUGH
    # The identity in the certificate that the sidecar reports to the program.
    identity: str = ""
    # Whether the request must be readable between the pods.
    plain: bool = False


WEB_NAMES = tuple(web.name for web in WEBS)
VIP = things.VIP_PORT
FIRST = WEBS[0]
WEB_HOST = f"web.{places.NAMESPACE}.svc.{places.DOMAIN}"


def service(name):
    """The address that the API server has assigned to a Service."""
    return ("service", name)


def mutual(place, **of_call):
    """A call from sidecar to sidecar, to the Service of the webs."""
    return {"by": WEB_NAMES, "identity": place.identity, **of_call}


AS_USUAL = (
    # Through both sidecars, by the Service's address.
    Call("a Service, one connection", CLIENT.name, service("web"), VIP, times=MANY, **mutual(CLIENT)),
    Call("a Service, many connections", CLIENT.name, service("web"), VIP, "anew", times=MANY, **mutual(CLIENT)),
    Call("a Service by raw TCP", CLIENT.name, service("web"), places.TCP_PORT, "tcp", outcome=ANSWERED,
         by=WEB_NAMES, is_one=True),
    Call("a Service by raw TCP, all at once", CLIENT.name, service("web"), places.TCP_PORT, "together", times=TOGETHER,
         outcome=ANSWERED, by=WEB_NAMES),
    Call("a Service by raw TCP, megabytes", CLIENT.name, service("web"), places.TCP_PORT, "bulk", times=BULK,
         outcome=ANSWERED, source=""),
    Call("a Service that one is behind oneself", FIRST.name, service("web"), VIP, "anew", times=MANY, **mutual(FIRST)),
    Call("a Service of nobody else's", CLIENT.name, service("client"), VIP, called="client", by=(CLIENT.name,),
         identity=CLIENT.identity),
    Call("a Service by UDP", CLIENT.name, service("web"), places.UDP_PORT, "udp", times=MANY, outcome=ANSWERED,
         by=WEB_NAMES, source=CLIENT.address, plain=True),
    Call("a Service without endpoints", CLIENT.name, service(things.EMPTY), things.EMPTY_PORT, "anew",
         called=things.EMPTY, outcome=NOBODY, source=""),
    # By pods' own addresses.
    Call("a pod that a headless Service names", CLIENT.name, FIRST, places.DIRECT_PORT, "tcp", outcome=ANSWERED,
         by=(FIRST.name,)),
    Call("a pod that no Service names", CLIENT.name, FIRST, places.HTTP_PORT, outcome=ENDED, source="", plain=True),
    Call("a pod's port that nobody listens at", CLIENT.name, FIRST, places.CLOSED_PORT, "tcp", outcome=ENDED, source="",
         plain=True),
    Call("a pod's port past its sidecar", CLIENT.name, FIRST, places.EXCLUDED_PORT, by=(FIRST.name,),
         source=CLIENT.address, plain=True),
    Call("oneself, by the pod's address", CLIENT.name, CLIENT, places.HTTP_PORT, by=(CLIENT.name,),
         source=CLIENT.address),
    Call("oneself, by the pod's address, nobody listens", CLIENT.name, CLIENT, places.CLOSED_PORT, outcome=REFUSED,
         source=""),
    Call("127.0.0.1", CLIENT.name, "127.0.0.1", places.HTTP_PORT, by=(CLIENT.name,), source="127.0.0.1"),
    Call("127.0.0.1, where only it is served", CLIENT.name, "127.0.0.1", places.LOCAL_PORT, by=(CLIENT.name,),
         source="127.0.0.1"),
    Call("127.0.0.1, nobody listens", CLIENT.name, "127.0.0.1", places.CLOSED_PORT, outcome=REFUSED, source=""),
    # Out of the mesh.
    Call("a Service without sidecars", CLIENT.name, service("bare"), VIP, called="bare", by=(BARE.name,),
         source=CLIENT.address, plain=True),
    Call("a pod without sidecar", CLIENT.name, BARE, places.TCP_PORT, "tcp", outcome=ANSWERED, by=(BARE.name,),
         source=CLIENT.address, plain=True),
    Call("a pod without sidecar, nobody listens", CLIENT.name, BARE, places.CLOSED_PORT, "tcp", outcome=ENDED,
         source=""),
    Call("outside, by HTTP", CLIENT.name, places.OUTSIDE, VIP, "anew", called="example.org", outcome=NOBODY, source=""),
    Call("outside, by raw TCP", CLIENT.name, places.OUTSIDE, places.TCP_PORT, "tcp", outcome=ENDED, source=""),
    # Names that the sidecar resolves.
    *(Call(f"the name of a Service, {kind}", CLIENT.name, places.RESOLVER, places.DNS_PORT, kind, called=WEB_HOST,
           outcome="web", source="") for kind in ("dns", "dns-sendto", "dns-tcp")),
    # Calls that policies deny.
    Call("a forbidden path", CLIENT.name, service("web"), VIP, "anew", path=things.FORBIDDEN_PATH, outcome=DENIED,
         source=""),
    Call("a path that is not for webs", FIRST.name, service("web"), VIP, "anew", path=things.GUARDED_PATH,
         outcome=DENIED, source=""),
    Call("a path that is not for webs, others", CLIENT.name, service("web"), VIP, path=things.GUARDED_PATH, times=MANY,
         **mutual(CLIENT)),
    Call("a port that is not for clients", CLIENT.name, service("web"), places.GUARDED_PORT, "tcp", outcome=ENDED,
         source=""),
    Call("a port that is not for clients, others", FIRST.name, service("web"), places.GUARDED_PORT, "together",
         times=TOGETHER, outcome=ANSWERED, by=WEB_NAMES),
    # Into the mesh from outside.
    Call("into the mesh, a Service", OUTSIDER.name, service("web"), VIP, "anew", outcome=ENDED, source="", plain=True),
    Call("into the mesh, a Service by raw TCP", OUTSIDER.name, service("web"), places.TCP_PORT, "tcp", outcome=ENDED,
         source="", plain=True),
    Call("into the mesh, a pod", OUTSIDER.name, FIRST, places.HTTP_PORT, outcome=ENDED, source="", plain=True),
    Call("into the mesh, past the sidecar", OUTSIDER.name, FIRST, places.EXCLUDED_PORT, by=(FIRST.name,),
         source=OUTSIDER.address, plain=True),
    Call("into the mesh, a Service by UDP", OUTSIDER.name, service("web"), places.UDP_PORT, "udp", times=MANY,
         outcome=ANSWERED, by=WEB_NAMES, source=OUTSIDER.address, plain=True),
    Call("how the sidecar is", NODE, FIRST, places.HEALTH_PORT, path="/healthz/ready", source="", plain=True),
    Call("into the mesh, from the node", NODE, FIRST, places.HTTP_PORT, outcome=ENDED, source="", plain=True),
    # Both ends outside the mesh.
    Call("outsiders, a Service", OUTSIDER.name, service("bare"), VIP, called="bare", by=(BARE.name,),
         source=OUTSIDER.address, plain=True),
    Call("outsiders, a pod", OUTSIDER.name, BARE, places.TCP_PORT, "tcp", outcome=ANSWERED, by=(BARE.name,),
         source=OUTSIDER.address, plain=True),
    Call("outsiders, a Service without endpoints", OUTSIDER.name, service(things.EMPTY), things.EMPTY_PORT,
         outcome=REFUSED, source=""),
    Call("outsiders, outside", OUTSIDER.name, places.OUTSIDE, VIP, outcome=UNREACHABLE, source=""),
)

# While the client's sidecar does not run: captured connections must be refused, and must not bypass the sidecar.
WITHOUT_SIDECAR = (
    Call("no sidecar: a Service", CLIENT.name, service("web"), VIP, outcome=REFUSED, source=""),
    Call("no sidecar: a Service by raw TCP", CLIENT.name, service("web"), places.TCP_PORT, "tcp", outcome=REFUSED,
         source=""),
    Call("no sidecar: a pod", CLIENT.name, FIRST, places.DIRECT_PORT, "tcp", outcome=REFUSED, source=""),
    Call("no sidecar: a Service without sidecars", CLIENT.name, service("bare"), VIP, outcome=REFUSED, source=""),
    Call("no sidecar: outside", CLIENT.name, places.OUTSIDE, VIP, outcome=REFUSED, source=""),
    Call("no sidecar: a Service by UDP", CLIENT.name, service("web"), places.UDP_PORT, "udp", times=MANY,
         outcome=ANSWERED, by=WEB_NAMES, source=CLIENT.address, plain=True),
    Call("no sidecar: oneself", CLIENT.name, CLIENT, places.HTTP_PORT, by=(CLIENT.name,), source=CLIENT.address),
    Call("no sidecar: 127.0.0.1", CLIENT.name, "127.0.0.1", places.LOCAL_PORT, by=(CLIENT.name,), source="127.0.0.1"),
    Call("no sidecar: from elsewhere", OUTSIDER.name, CLIENT, places.HTTP_PORT, outcome=REFUSED, source=""),
    Call("no sidecar: from elsewhere, past it", OUTSIDER.name, CLIENT, places.EXCLUDED_PORT, by=(CLIENT.name,),
         source=OUTSIDER.address, plain=True),
)
# After the sidecar has been started again.
WITH_SIDECAR_AGAIN = (
    Call("sidecar again: a Service", CLIENT.name, service("web"), VIP, "anew", times=MANY, **mutual(CLIENT)),
    Call("sidecar again: from elsewhere", OUTSIDER.name, CLIENT, places.HTTP_PORT, outcome=ENDED, source="",
         plain=True),
)
CALLS = (*AS_USUAL, *WITHOUT_SIDECAR, *WITH_SIDECAR_AGAIN)
