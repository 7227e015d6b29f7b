//! Services and EndpointSlices as Kubernetes has them, in JSON, of which YAML is a superset.

use super::workload::{NAMESPACE, PORT, Service, TARGET_PORT};
use serde_json::{Value, json};

pub fn service(each: &Service) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": each.name, "namespace": NAMESPACE, "uid": format!("s-{}", each.number), "resourceVersion": "1"},
        "spec": {
            "type": "ClusterIP",
            "clusterIP": each.address,
            "clusterIPs": [each.address],
            "ipFamilies": ["IPv4"],
            "sessionAffinity": "None",
            "ports": [{"protocol": "TCP", "port": PORT, "targetPort": TARGET_PORT}],
        },
    })
}

pub fn slice(each: &Service) -> Value {
    let endpoints: Vec<Value> =
        each.endpoints.iter().map(|address| json!({"addresses": [address], "conditions": {"ready": true}})).collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": format!("{}-1", each.name),
            "namespace": NAMESPACE,
            "uid": format!("e-{}", each.number),
            "resourceVersion": "1",
            "labels": {"kubernetes.io/service-name": each.name},
        },
        "addressType": "IPv4",
        "ports": [{"name": "", "protocol": "TCP", "port": TARGET_PORT}],
        "endpoints": endpoints,
    })
}

/// Both, for a file of the agent's directory.
pub fn documents(each: &Service) -> String {
    format!("{}\n---\n{}\n", service(each), slice(each))
}

#[cfg(test)]
mod tests {
    use super::super::workload::services;
    use super::*;

    #[test]
    fn a_slice_belongs_to_its_service() {
        let all = services(1);
        let made = slice(&all[0]);
        assert_eq!(made["metadata"]["labels"]["kubernetes.io/service-name"], all[0].name);
        let addresses: Vec<String> = (1..=12).map(|pod| format!("10.78.0.{pod}")).collect();
        let found: Vec<&str> = made["endpoints"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|each| each["addresses"][0].as_str())
            .collect();
        assert_eq!(found, addresses);
    }
}
