"""The objects of the mesh at the API server: pods, Services, and policies."""

from kube.addresses import NODE_NAME
from kube.objects import namespace, service

from .places import (
    APPS,
    CLOSED_PORT,
    DIRECT_PORT,
    GUARDED_PORT,
    HTTP_PORT,
    NAMESPACE,
    NODE,
    PLACES,
    TCP_PORT,
    UDP_PORT,
    principal,
)

ISTIO_SYSTEM = "istio-system"
# A Service with an HTTP port and without pods.
EMPTY = "empty"
HEADLESS = "web-direct"
VIP_PORT, EMPTY_PORT = 80, 81
FORBIDDEN_PATH, GUARDED_PATH = "/forbidden", "/not-for-web"


def all_things():
    yield from (namespace(ISTIO_SYSTEM), namespace(NAMESPACE))
    yield from (thing("v1", "ServiceAccount", app) for app in APPS)
    yield from (pod(place) for place in PLACES.values())
    yield from services()
    yield from policies()


def thing(version, kind, name, spec=None, in_namespace=NAMESPACE):
    made = {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": in_namespace}}
    return made if spec is None else {**made, "spec": spec}


def pod(place):
    """A Pod that is bound to the node; its status is written by the test, since no kubelet starts containers."""
    labels = {"app": place.app, "service.istio.io/canonical-name": place.app}
    if place.is_meshed:
        labels["security.istio.io/tlsMode"] = "istio"
    made = thing("v1", "Pod", place.name, {
        "nodeName": NODE_NAME, "serviceAccountName": place.app, "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0, "containers": [{"name": "app", "image": "none"}]})
    made["metadata"]["labels"] = labels
    return made


def running(place):
    return {"phase": "Running", "podIP": place.address, "podIPs": [{"ip": place.address}], "hostIP": NODE,
            "conditions": [{"type": kind, "status": "True"} for kind in ("Ready", "ContainersReady")]}


def services():
    http = port("http", VIP_PORT, HTTP_PORT)
    yield selecting("web", "web", [http, port("tcp", TCP_PORT), port("tcp-guarded", GUARDED_PORT),
                                   port("udp", UDP_PORT, protocol="UDP")])
    yield selecting(HEADLESS, "web", [port("tcp-direct", DIRECT_PORT)], clusterIP="None")
    yield selecting("client", "client", [http])
    yield selecting("bare", "bare", [http])
    yield selecting(EMPTY, "nobody", [port("http", EMPTY_PORT, CLOSED_PORT)])


def selecting(name, app, ports, **spec):
    return service(NAMESPACE, name, selector={"app": app}, ports=ports, ipFamilyPolicy="SingleStack", **spec)


def port(name, number, target=None, protocol="TCP"):
    """Istio derives the protocol from the port's name."""
    return {"name": name, "port": number, "targetPort": target or number, "protocol": protocol}


def policies():
    """The whole mesh uses mutual TLS only. HTTP rules name the HTTP port: on a raw one they would match everything."""
    security = "security.istio.io/v1"
    yield thing(security, "PeerAuthentication", "default", {"mtls": {"mode": "STRICT"}}, ISTIO_SYSTEM)
    operation = {"ports": [str(HTTP_PORT)]}
    yield denial("forbidden", {"to": [{"operation": {**operation, "paths": [FORBIDDEN_PATH]}}]})
    yield denial("not-for-web", {"to": [{"operation": {**operation, "paths": [GUARDED_PATH]}}],
                                 "from": [{"source": {"principals": [principal("web")]}}]})
    yield denial("guarded-port", {"to": [{"operation": {"ports": [str(GUARDED_PORT)]}}],
                                  "from": [{"source": {"principals": [principal("client")]}}]})


def denial(name, rule):
    return thing("security.istio.io/v1", "AuthorizationPolicy", name,
                 {"selector": {"matchLabels": {"app": "web"}}, "action": "DENY", "rules": [rule]})
