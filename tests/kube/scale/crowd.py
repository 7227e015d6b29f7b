"""The Services and EndpointSlices of 5,000 nodes, with all that Kubernetes' own controllers write into them.

The objects are written directly: the nodes that would have caused them are not there, since an agent sees its own alone. Pods are there
if they are asked for: an agent that enforces NetworkPolicies reads them all.
"""

import hashlib
import uuid

from kube import addresses as at
from kube.model import SERVICE_NAME
from kube.objects import namespace, ready_slice, service

NODES = 5000
ZONES = ("za", "zb", "zc")
NAMESPACES = 100
ENDPOINTS = 10
# Services whose endpoint exists and is changed.
REAL = 50
REAL_NAMESPACE = "scale-real"
# Addresses of pods that do not exist: 10.128.0.0/9.
FIRST_POD = 10 << 24 | 128 << 16


class Crowd:
    """`pods`: how many of the endpoints have one."""

    def __init__(self, api, services, pods=0):
        self.api = api
        self.services = services
        self.pods = pods
        self.real = []

    def write(self):
        """As fast as the API server accepts them."""
        self.api.each(self.api.create, [namespace(name_of(number)) for number in range(NAMESPACES)])
        self.api.create(namespace(REAL_NAMESPACE))
        self.api.each(self.write_one, range(self.services - REAL))
        self.real = self.api.each(self.write_real, range(REAL))
        self.api.each(self.write_pod, range(self.pods))
        self.api.each(self.api.create, [a_policy(number) for number in range(NAMESPACES if self.pods else 0)])

    def write_one(self, number):
        made = self.api.create(a_service(number))
        self.api.create(a_slice(made, number))

    def write_real(self, number):
        made = self.api.create(service(REAL_NAMESPACE, f"real-{number}"))
        self.api.create(real_slice(made, at.BACKEND_PORTS[0]))
        return made

    def write_pod(self, number):
        made = a_pod(number)
        self.api.create(made)
        self.api.set_status(made, {
            "phase": "Running", "hostIP": "10.251.0.12", "podIP": address(number), "podIPs": [{"ip": address(number)}],
            "conditions": [{"type": "Ready", "status": "True"}], "startTime": "2026-11-01T12:00:00Z"})


def name_of(number):
    return f"scale-{number % NAMESPACES}"


def real_slice(of, port):
    """The only endpoint of a Service that is reached."""
    return ready_slice(of, [at.HERE[4][0]], port)


def a_service(number):
    app = f"app-{number}"
    made = service(name_of(number), app, selector={"app.kubernetes.io/name": app},
                   ports=[{"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}])
    made["metadata"]["labels"] = labels(app)
    made["metadata"]["annotations"] = {"meta.helm.sh/release-name": app, "meta.helm.sh/release-namespace": name_of(number)}
    return made


def a_slice(of, number):
    """As the EndpointSlice controller writes it."""
    name, app = of["metadata"]["name"], f"app-{number}"
    first = number * ENDPOINTS
    owner = {"apiVersion": "v1", "kind": "Service", "name": name, "uid": of["metadata"]["uid"], "controller": True,
             "blockOwnerDeletion": True}
    metadata = {"name": f"{name}-{hashlib.sha1(name.encode()).hexdigest()[:5]}", "namespace": of["metadata"]["namespace"],
                "labels": {**labels(app), SERVICE_NAME: name,
                           "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"},
                "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": "2026-11-01T12:00:00Z"},
                "ownerReferences": [owner]}
    return {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata, "addressType": "IPv4",
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            "endpoints": [an_endpoint(of, first + index) for index in range(ENDPOINTS)]}


def an_endpoint(of, number):
    name, space = of["metadata"]["name"], of["metadata"]["namespace"]
    pod = {"kind": "Pod", "namespace": space, "name": pod_name(name, number), "uid": str(uuid.uuid5(uuid.NAMESPACE_OID, str(number)))}
    return {"addresses": [address(number)], "conditions": {"ready": True, "serving": True, "terminating": False},
            "nodeName": node_name(number), "zone": ZONES[number % NODES % len(ZONES)], "targetRef": pod}


def a_pod(number):
    """That of an endpoint, as a Deployment makes it."""
    of = number // ENDPOINTS
    app = f"app-{of}"
    return {"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": pod_name(app, number), "namespace": name_of(of),
                         "labels": {**labels(app), "pod-template-hash": "7d9c5b6f4"}},
            "spec": {"nodeName": node_name(number), "automountServiceAccountToken": False, "containers": [
                {"name": "app", "image": f"registry.test/{app}:1.4.2", "ports": [{"name": "http", "containerPort": 8080}]}]}}


def a_policy(number):
    """Each namespace is open to one other."""
    other = {"kubernetes.io/metadata.name": name_of(number + 1)}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "one", "namespace": name_of(number)},
            "spec": {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [
                {"from": [{"namespaceSelector": {"matchLabels": other}}], "ports": [{"port": "http"}]}]}}


def pod_name(app, number):
    return f"{app}-7d9c5b6f4-{number:05x}"


def node_name(number):
    return f"node-{number % NODES:04}"


def address(number):
    value = FIRST_POD + number
    return ".".join(str(value >> shift & 255) for shift in (24, 16, 8, 0))


def labels(app):
    return {"app.kubernetes.io/name": app, "app.kubernetes.io/instance": app, "app.kubernetes.io/managed-by": "Helm",
            "helm.sh/chart": f"{app}-1.4.2"}
