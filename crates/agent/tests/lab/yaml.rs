//! Services, EndpointSlices and Captures as people write them.

use std::net::IpAddr;

/// `more`: lines of the spec.
pub fn service(name: &str, vip: &str, port: u16, more: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec:\n  clusterIP: {vip}\n  \
         ports: [{{port: {port}}}]\n{more}---\n"
    )
}

pub fn slice(service: &str, endpoints: &[IpAddr], port: u16) -> String {
    let each: String = endpoints.iter().map(|ip| format!("- {{addresses: ['{ip}']}}\n")).collect();
    let endpoints = if each.is_empty() { "endpoints: []\n".into() } else { format!("endpoints:\n{each}") };
    format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {service}-1, labels: \
         {{kubernetes.io/service-name: {service}}}}}\naddressType: IPv4\nports: [{{port: {port}}}]\n{endpoints}---\n"
    )
}

/// `more`: lines of the spec.
pub fn capture(name: &str, netns: &str, more: &str) -> String {
    format!(
        "apiVersion: sidestep.dev/v1\nkind: Capture\nmetadata: {{name: {name}}}\nspec:\n  netns: {netns}\n{more}---\n"
    )
}

/// With an annotation about traffic.
pub fn annotated(name: &str, netns: &str, annotation: &str, value: &str) -> String {
    let annotation = format!("annotations: {{traffic.sidecar.istio.io/{annotation}: '{value}'}}");
    capture(name, netns, "").replace(&format!("{{name: {name}}}"), &format!("{{name: {name}, {annotation}}}"))
}
