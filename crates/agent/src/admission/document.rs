//! The document of kind Capture of a pod that the CNI plugin asks for: what the pod's object says, and its network namespace.
//!
//! The document is written as text and read like any other one, so that a file of an operator, and a file of an earlier agent,
//! mean the same as what is admitted now.

use super::error::AdmissionError;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Map, Value, json};
use sidestep_agent_api::Applicant;
use sidestep_mesh::capture::pod::Capture;
use sidestep_mesh::capture::sidecar::{Proxy, Sidecar, sidecar};
use sidestep_mesh::field::{MIRROR, REQUIRE_PROXY};
use sidestep_mesh::object::Object;
use sidestep_mesh::yaml;
use std::path::Path;

/// Which attachment the document is for: NETWORK/CONTAINER/INTERFACE.
pub const ATTACHMENT: &str = "sidestep.dev/attachment";
/// Prefix of Istio's annotations about traffic.
const TRAFFIC: &str = "traffic.sidecar.istio.io/";
/// Where documents look for names of network namespaces.
const NAMED: &str = "/run/netns";
/// The same directory by the link /var/run, which a container of the agent may lack.
const BY_LINK: &str = "/var/run/netns";
/// Istio's other annotations about traffic.
const OTHERS: [&str; 2] = ["sidecar.istio.io/interceptionMode", "istio.io/reroute-virtual-interfaces"];

pub struct Document {
    pub text: String,
    /// What the text means.
    pub capture: Capture,
    /// Why nothing is captured.
    pub uncaptured: Option<&'static str>,
}

impl Document {
    /// `host_netns`: the node's directory that this process has at /run/netns. The error is a text of the pod's annotations that
    /// cannot be read, or that the object is another pod's.
    pub fn new(applicant: &Applicant, pod: &Pod, host_netns: &Path) -> Result<Document, AdmissionError> {
        check_uid(applicant, pod)?;
        let (proxy, uncaptured) = match sidecar(pod) {
            Sidecar::Present(proxy) => (Some(proxy), None),
            Sidecar::Absent(why) => (None, Some(why)),
        };
        let spec = spec(applicant, host_netns, proxy.as_ref());
        let text = format!("{:#}\n", document(applicant, pod, spec, proxy.is_some()));
        let capture = read(&text)?;
        Ok(Document { text, capture, uncaptured })
    }
}

/// The document's meaning.
pub fn read(text: &str) -> Result<Capture, AdmissionError> {
    match yaml::parse(text).map_err(AdmissionError::Annotations)?.pop() {
        Some(Object::Capture(capture)) => Ok(*capture),
        _ => Err(AdmissionError::NoCapture),
    }
}

/// A name may have been given to a new pod while the runtime still starts the old one.
fn check_uid(applicant: &Applicant, pod: &Pod) -> Result<(), AdmissionError> {
    let Some(asked) = applicant.uid.as_deref() else { return Ok(()) };
    if [pod.metadata.uid.as_deref(), mirrored(pod)].contains(&Some(asked)) {
        return Ok(());
    }
    let found = pod.metadata.uid.clone().unwrap_or_default();
    Err(AdmissionError::OtherPod { asked: asked.into(), found })
}

/// The kubelet's UID of a pod that it has from a file.
fn mirrored(pod: &Pod) -> Option<&str> {
    pod.metadata.annotations.as_ref()?.get(MIRROR).map(String::as_str)
}

/// By which the agent knows the pod's object from those of other pods of the name. A mirror may be made anew, with another UID of
/// its own, while the pod runs.
fn uid<'a>(applicant: &'a Applicant, pod: &'a Pod) -> Option<&'a str> {
    applicant.uid.as_deref().or(mirrored(pod)).or(pod.metadata.uid.as_deref())
}

fn document(applicant: &Applicant, pod: &Pod, spec: Value, is_captured: bool) -> Value {
    let of = &applicant.attachment;
    let mut annotations = if is_captured { of_traffic(pod) } else { nothing() };
    annotations.insert(ATTACHMENT.into(), json!(format!("{}/{}/{}", of.network, of.container, of.interface)));
    if let Some(required) = pod.metadata.annotations.as_ref().and_then(|all| all.get(REQUIRE_PROXY)) {
        annotations.insert(REQUIRE_PROXY.into(), json!(required));
    }
    json!({
        "apiVersion": "sidestep.dev/v1",
        "kind": "Capture",
        "metadata": {
            "namespace": applicant.namespace,
            "name": applicant.name,
            "uid": uid(applicant, pod),
            "labels": pod.metadata.labels.clone().unwrap_or_default(),
            "annotations": annotations,
        },
        "spec": spec,
    })
}

fn spec(applicant: &Applicant, host_netns: &Path, proxy: Option<&Proxy>) -> Value {
    let mut spec = json!({ "netns": netns(&applicant.netns, host_netns), "addresses": applicant.addresses });
    if let Some(proxy) = proxy {
        spec["proxy"] = json!({ "uid": proxy.uid.to_string(), "gid": proxy.gid.to_string() });
        if proxy.dns {
            spec["dns"] = json!({});
        }
    }
    spec
}

/// The pod's annotations about traffic. istio-cni excludes one more port than the injector does, by default.
fn of_traffic(pod: &Pod) -> Map<String, Value> {
    let is_ours = |name: &str| name.starts_with(TRAFFIC) || OTHERS.contains(&name);
    let given = pod.metadata.annotations.iter().flatten().filter(|(name, _)| is_ours(name));
    let mut annotations: Map<_, _> = given.map(|(name, text)| (name.clone(), json!(text))).collect();
    annotations.entry(format!("{TRAFFIC}excludeOutboundPorts")).or_insert_with(|| json!("15020"));
    annotations
}

/// Annotations by which nothing is captured.
fn nothing() -> Map<String, Value> {
    ["includeOutboundIPRanges", "includeInboundPorts"]
        .map(|name| (format!("{TRAFFIC}{name}"), json!("")))
        .into_iter()
        .collect()
}

/// The runtime names a namespace as the node sees it. The node's directory may also be the one to which its /run/netns is a link.
fn netns(path: &Path, host_netns: &Path) -> String {
    let directories = [host_netns, Path::new(NAMED), Path::new(BY_LINK)];
    let name_in = |directory: &Path| path.strip_prefix(directory).ok()?.to_str().filter(|name| is_name(name));
    match directories.into_iter().find_map(name_in) {
        Some(name) => format!("{NAMED}/{name}"),
        None => path.display().to_string(),
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains('/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidestep_agent_api::Attachment;
    use sidestep_error::chain;
    use sidestep_mesh::capture::rules::{DnsServers, InboundPorts, Ranges};
    use std::path::PathBuf;

    fn applicant() -> Applicant {
        Applicant {
            attachment: Attachment { network: "net".into(), container: "c1".into(), interface: "eth0".into() },
            netns: "/var/run/netns/cni-1".into(),
            namespace: "shop".into(),
            name: "web-0".into(),
            uid: Some("u1".into()),
            addresses: vec!["10.0.0.7".parse().unwrap()],
            within_ms: 1000,
        }
    }

    fn pod(annotations: Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "web-0", "namespace": "shop", "uid": "u1", "labels": {"app": "web"},
                         "annotations": annotations},
            "spec": {"containers": [
                {"name": "istio-proxy", "securityContext": {"runAsUser": 5000, "runAsGroup": 6000},
                 "env": [{"name": "ISTIO_META_DNS_CAPTURE", "value": "true"}]},
            ]},
        }))
        .unwrap()
    }

    fn of(applicant: &Applicant, pod: &Pod) -> Result<Document, AdmissionError> {
        Document::new(applicant, pod, Path::new(NAMED))
    }

    fn refusal(pod: &Pod) -> String {
        match of(&applicant(), pod) {
            Ok(document) => panic!("{}", document.text),
            Err(error) => chain(&error).to_string(),
        }
    }

    #[test]
    fn a_pod_with_a_sidecar_is_captured_by_its_annotations() {
        let annotations = json!({
            "sidecar.istio.io/status": "{}",
            "traffic.sidecar.istio.io/excludeInboundPorts": "9000",
            "traffic.sidecar.istio.io/includeOutboundIPRanges": "10.0.0.0/8",
            "other": "\n---\nkind: Policy",
        });
        let document = of(&applicant(), &pod(annotations)).unwrap();
        let Capture { name, uid, netns, labels, addresses, rules, .. } = document.capture;
        assert_eq!(uid.as_deref(), Some("u1"));
        assert_eq!((name.to_string().as_str(), document.uncaptured), ("shop/web-0", None));
        assert_eq!(netns.path(), PathBuf::from("/run/netns/cni-1"));
        assert_eq!(addresses, applicant().addresses);
        assert!(labels.iter().any(|(key, value)| (&**key, &**value) == ("app", "web")), "{labels:?}");
        assert_eq!((rules.proxy_uids, rules.proxy_gids), (vec![5000], vec![6000]));
        assert_eq!(rules.dns.unwrap().servers, DnsServers::All);
        assert_eq!(rules.exclude_outbound_ports, [15020]);
        assert!(matches!(rules.inbound_ports, InboundPorts::AllBut(ports) if ports.contains(&9000)));
        assert!(matches!(rules.include_outbound_ranges, Ranges::These(ranges) if ranges.len() == 1));
        assert!(!document.text.contains("Policy"), "only what concerns traffic is taken over");
    }

    #[test]
    fn of_a_pod_without_sidecar_nothing_is_captured_whatever_its_annotations_say() {
        let document = of(&applicant(), &pod(json!({"traffic.sidecar.istio.io/wrong": "x"}))).unwrap();
        let rules = document.capture.rules;
        assert!(document.uncaptured.is_some());
        assert_eq!(
            (rules.include_outbound_ranges, rules.inbound_ports),
            (Ranges::These(vec![]), InboundPorts::Only(vec![]))
        );
        assert!(rules.include_outbound_ports.is_empty());
    }

    #[test]
    fn namespaces_are_found_in_the_nodes_directory_wherever_that_is() {
        let seen = |path: &str, host_netns: &str| netns(Path::new(path), Path::new(host_netns));
        assert_eq!(seen("/data/vendor/netns/cni-1", "/data/vendor/netns"), "/run/netns/cni-1");
        assert_eq!(seen("/var/run/netns/cni-1", "/var/run/netns"), "/run/netns/cni-1");
        // By links: the node's /run is its /data/run.
        for path in ["/run/netns/cni-1", "/var/run/netns/cni-1", "/data/run/netns/cni-1"] {
            assert_eq!(seen(path, "/data/run/netns"), "/run/netns/cni-1");
        }
        for path in ["/proc/7/ns/net", "/data/vendor/netns", "/data/vendor/netns/a/b", "/data/vendor/netns-2/a"] {
            assert_eq!(seen(path, "/data/vendor/netns"), path);
        }
        let document = |host_netns: &str| {
            let elsewhere = Applicant { netns: "/data/vendor/netns/cni-1".into(), ..applicant() };
            Document::new(&elsewhere, &pod(json!({})), Path::new(host_netns)).unwrap().capture.netns.path()
        };
        assert_eq!(document("/data/vendor/netns"), PathBuf::from("/run/netns/cni-1"));
        assert_eq!(document("/run/netns"), PathBuf::from("/data/vendor/netns/cni-1"), "as the runtime says");
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_its_name() {
        let status = ("sidecar.istio.io/status", "{}");
        let with = |name: &str, text: &str| pod(json!({ status.0: status.1, name: text }));
        let told = refusal(&with("traffic.sidecar.istio.io/excludeOutboundPorts", "http"));
        assert!(told.contains("excludeOutboundPorts") && told.contains("\"http\""), "{told}");
        let told = refusal(&with("sidecar.istio.io/interceptionMode", "TPROXY"));
        assert!(told.contains("interceptionMode") && told.contains("TPROXY"), "{told}");
        let told = refusal(&with(REQUIRE_PROXY, "ture"));
        assert!(told.contains(REQUIRE_PROXY), "{told}");
    }

    #[test]
    fn another_pod_of_that_name_is_refused_but_not_a_mirror() {
        let mut other = pod(json!({}));
        other.metadata.uid = Some("u2".into());
        let told = refusal(&other);
        assert!(told.contains("u1") && told.contains("u2"), "{told}");
        other.metadata.annotations = Some([(MIRROR.to_string(), "u1".to_string())].into());
        let uid_of = |applicant: &Applicant, pod: &Pod| of(applicant, pod).unwrap().capture.uid;
        assert_eq!(uid_of(&applicant(), &other).as_deref(), Some("u1"));
        let unsaid = Applicant { uid: None, ..applicant() };
        assert_eq!(uid_of(&unsaid, &other).as_deref(), Some("u1"), "the kubelet's, which stays");
        assert_eq!(uid_of(&unsaid, &pod(json!({}))).as_deref(), Some("u1"), "the object's");
    }
}
