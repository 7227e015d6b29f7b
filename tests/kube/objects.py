"""Services and EndpointSlices that tests write by hand."""

from kube import addresses as at
from kube.model import SERVICE_NAME


def namespace(name):
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def service(namespace_name, name, **spec):
    """One port, TCP 80, by default."""
    spec.setdefault("ports", [{"port": 80, "protocol": "TCP"}])
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace_name},
            "spec": spec}


def ready_slice(of, addresses, port, number=0):
    """Endpoints of a Service's only port, all of them ready."""
    metadata = {"name": f"{of['metadata']['name']}-{number}", "namespace": of["metadata"]["namespace"],
                "labels": {SERVICE_NAME: of["metadata"]["name"]}}
    return {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata,
            "addressType": "IPv6" if ":" in addresses[0] else "IPv4",
            "ports": [{"name": "", "port": port, "protocol": "TCP"}],
            "endpoints": [endpoint(address) for address in addresses]}


def endpoint(address):
    """The endpoint of a pod here has `nodeName`: kube-proxy needs it for a pod's connection to its own Service."""
    ready = {"addresses": [address], "conditions": {"ready": True}}
    return {**ready, "nodeName": at.NODE_NAME} if address in at.POD.values() else ready
