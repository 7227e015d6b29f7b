//! Services, EndpointSlices and Captures in YAML.

use sidestep_testkit::Pod;
use std::net::IpAddr;

/// `more`: further lines of the spec.
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

/// `more`: further lines of the spec.
pub fn capture(name: &str, netns: &str, more: &str) -> String {
    format!(
        "apiVersion: sidestep.dev/v1\nkind: Capture\nmetadata: {{name: {name}}}\nspec:\n  netns: {netns}\n{more}---\n"
    )
}

/// A Capture with an annotation about traffic.
pub fn annotated(name: &str, netns: &str, annotation: &str, value: &str) -> String {
    let annotation = format!("annotations: {{traffic.sidecar.istio.io/{annotation}: '{value}'}}");
    capture(name, netns, "").replace(&format!("{{name: {name}}}"), &format!("{{name: {name}, {annotation}}}"))
}

/// A pod with labels for policies, of which nothing is captured.
pub fn labelled(name: &str, pod: &Pod, labels: &str) -> String {
    let nothing = "annotations: {traffic.sidecar.istio.io/includeOutboundIPRanges: '', \
                   traffic.sidecar.istio.io/includeInboundPorts: ''}";
    named(name, pod, labels, nothing)
}

/// A pod with labels, all of whose connections are captured. `annotation`: such as `sidestep.dev/require-proxy: 'true'`.
pub fn proxied(name: &str, pod: &Pod, labels: &str, annotation: &str) -> String {
    named(name, pod, labels, &format!("annotations: {{{annotation}}}"))
}

fn named(name: &str, pod: &Pod, labels: &str, annotations: &str) -> String {
    let addresses = format!("  addresses: ['{}', '{}']\n", pod.v4, pod.v6);
    let text = capture(name, pod.namespace.name(), &addresses);
    text.replace(&format!("{{name: {name}}}"), &format!("{{name: {name}, labels: {labels}, {annotations}}}"))
}

/// `spec`: the text between its braces.
pub fn policy(name: &str, spec: &str) -> String {
    format!("apiVersion: sidestep.dev/v1\nkind: Policy\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n---\n")
}
