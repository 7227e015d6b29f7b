//! Pods and namespaces, reduced to what policies need.

use crate::address::Protocol;
use crate::capture::pod::{Capture, Netns};
use crate::field::{self, Invalid, labels, requires_proxy};
use crate::name::Name;
use crate::policy::rules::{Labels, NamedPorts};
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// A v1 Pod, or a captured pod without such an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// From `metadata`.
    pub name: Name,
    /// `metadata.labels`, from which the pod's identity is made. Pods with the same labels may share them.
    pub labels: Arc<Labels>,
    /// `ports` of its containers that have a name.
    pub ports: NamedPorts,
    /// `metadata.uid`. None: not known, or not needed.
    pub uid: Option<Arc<str>>,
    /// The annotation [`MIRROR`](field::MIRROR). None: the pod is not from a file, or it is not needed.
    pub mirrored: Option<Arc<str>>,
    /// `status.podIPs`. Empty for a pod that has ended or uses the node's network namespace: its addresses are others'.
    pub addresses: BTreeSet<IpAddr>,
    /// `spec.nodeName`. None: not scheduled yet, or known from a document of kind Capture only.
    pub node: Option<Arc<str>>,
    /// The annotation [`REQUIRE_PROXY`](field::REQUIRE_PROXY): its connections never bypass its proxy.
    pub requires_proxy: bool,
    /// That annotation if it cannot be read. It counts as `true`.
    pub misread: Option<Box<Invalid>>,
    /// From a document of kind Capture. None: the namespace is found by the pod's addresses.
    pub netns: Option<Netns>,
}

impl Pod {
    /// Whether the object is of the pod with this UID, and not of an earlier or later one of its name. None: any pod of the name.
    pub(crate) fn is_of(&self, uid: Option<&str>) -> bool {
        uid.is_none_or(|uid| [&self.uid, &self.mirrored].into_iter().flatten().any(|its| **its == *uid))
    }
}

/// A v1 Namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// `metadata.name`
    pub name: Arc<str>,
    /// `metadata.labels`
    pub labels: Labels,
    /// As [`Pod::requires_proxy`], for every pod in it.
    pub requires_proxy: bool,
    /// As [`Pod::misread`].
    pub misread: Option<Box<Invalid>>,
}

/// The error is an address that cannot be read, or a missing name.
pub fn pod(from: &core::Pod) -> Result<Pod, Invalid> {
    let (requires_proxy, misread) = requirement(&from.metadata);
    let (spec, status) = (from.spec.as_ref(), from.status.as_ref());
    let has_ended = matches!(status.and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"));
    let is_nodes = spec.is_some_and(|spec| spec.host_network == Some(true));
    let listed = status.and_then(|status| status.pod_ips.as_deref()).unwrap_or_default();
    let texts: Vec<String> = listed.iter().map(|ip| ip.ip.clone()).collect();
    let addresses = field::addresses("status.podIPs", &texts)?;
    Ok(Pod {
        name: field::name(&from.metadata)?,
        labels: labels(&from.metadata).into(),
        ports: from.spec.as_ref().map(named_ports).unwrap_or_default(),
        uid: from.metadata.uid.as_deref().map(Arc::from),
        mirrored: field::annotation(&from.metadata, field::MIRROR).map(Arc::from),
        addresses: if has_ended || is_nodes { BTreeSet::new() } else { addresses.into_iter().collect() },
        node: spec.and_then(|spec| spec.node_name.as_deref()).map(Arc::from),
        requires_proxy,
        misread,
        netns: None,
    })
}

/// Of two containers that use a name for the same protocol, the first one's: as Kubernetes looks names up. Containers that are to
/// end before the others begin accept no connections.
fn named_ports(spec: &core::PodSpec) -> NamedPorts {
    let sidecars = spec.init_containers.iter().flatten().filter(|one| one.restart_policy.as_deref() == Some("Always"));
    let mut found = NamedPorts::new();
    for port in spec.containers.iter().chain(sidecars).flat_map(|one| one.ports.iter().flatten()) {
        let protocol = match port.protocol.as_deref().unwrap_or("TCP") {
            "TCP" => Protocol::Tcp,
            "UDP" => Protocol::Udp,
            _ => continue,
        };
        if let (Some(name), Ok(number)) = (&port.name, u16::try_from(port.container_port)) {
            found.entry((name.as_str().into(), protocol)).or_insert(number);
        }
    }
    found
}

/// The error is a missing name.
pub fn namespace(from: &core::Namespace) -> Result<Namespace, Invalid> {
    let name = field::name(&from.metadata)?.name;
    let (requires_proxy, misread) = requirement(&from.metadata);
    Ok(Namespace { name, labels: labels(&from.metadata), requires_proxy, misread })
}

/// Whether it requires the proxy. What cannot be read does, lest a misspelt value permit a bypass. As an error it would keep the whole
/// object as it was: the next pod at an address that this one has given back would have no identity.
fn requirement(metadata: &ObjectMeta) -> (bool, Option<Box<Invalid>>) {
    match requires_proxy(metadata) {
        Ok(requires_proxy) => (requires_proxy, None),
        Err(misread) => (true, Some(Box::new(misread))),
    }
}

/// The pod of a Capture document.
pub(crate) fn of_capture(capture: &Capture) -> Pod {
    Pod {
        name: capture.name.clone(),
        labels: capture.labels.clone().into(),
        ports: NamedPorts::new(),
        uid: capture.uid.clone(),
        mirrored: None,
        addresses: capture.addresses.iter().copied().collect(),
        node: None,
        requires_proxy: capture.requires_proxy,
        misread: None,
        netns: Some(capture.netns.clone()),
    }
}
