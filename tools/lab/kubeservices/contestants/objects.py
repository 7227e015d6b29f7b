"""Services and EndpointSlices as Kubernetes has them, in JSON, of which YAML is a superset."""

import json

from .. import workload


def service(each):
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": each.name, "namespace": workload.NAMESPACE},
        "spec": {
            "clusterIP": each.vip,
            "clusterIPs": [each.vip],
            "ports": [{"protocol": "TCP", "port": workload.PORT, "targetPort": workload.TARGET_PORT}],
        },
    }


def endpoint_slice(each):
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{each.name}-1",
            "namespace": workload.NAMESPACE,
            "labels": {"kubernetes.io/service-name": each.name},
        },
        "addressType": "IPv4",
        "ports": [{"name": "", "protocol": "TCP", "port": workload.TARGET_PORT}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}} for address in each.endpoints],
    }


def documents(objects):
    return "".join(f"---\n{json.dumps(each)}\n" for each in objects)
