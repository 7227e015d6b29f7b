//! Pods and namespaces, reduced to what policies need.

use crate::capture::pod::{Capture, Netns};
use crate::field::{self, Invalid, labels, requires_proxy};
use crate::name::Name;
use crate::policy::rules::Labels;
use k8s_openapi::api::core::v1 as core;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    pub name: Name,
    pub labels: Labels,
    /// Empty for a pod that has ended or uses the node's network namespace: its addresses are others'.
    pub addresses: BTreeSet<IpAddr>,
    pub node: Option<Arc<str>>,
    pub requires_proxy: bool,
    /// If known; else the namespace is found by the pod's addresses.
    pub netns: Option<Netns>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    pub name: Arc<str>,
    pub requires_proxy: bool,
}

pub fn pod(from: &core::Pod) -> Result<Pod, Invalid> {
    let (spec, status) = (from.spec.as_ref(), from.status.as_ref());
    let has_ended = matches!(status.and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"));
    let is_nodes = spec.is_some_and(|spec| spec.host_network == Some(true));
    let listed = status.and_then(|status| status.pod_ips.as_deref()).unwrap_or_default();
    let texts: Vec<String> = listed.iter().map(|ip| ip.ip.clone()).collect();
    let addresses = field::addresses("status.podIPs", &texts)?;
    Ok(Pod {
        name: field::name(&from.metadata)?,
        labels: labels(&from.metadata),
        addresses: if has_ended || is_nodes { BTreeSet::new() } else { addresses.into_iter().collect() },
        node: spec.and_then(|spec| spec.node_name.as_deref()).map(Arc::from),
        requires_proxy: requires_proxy(&from.metadata)?,
        netns: None,
    })
}

pub fn namespace(from: &core::Namespace) -> Result<Namespace, Invalid> {
    let name = field::name(&from.metadata)?.name;
    Ok(Namespace { name, requires_proxy: requires_proxy(&from.metadata)? })
}

/// The pod of a Capture document.
pub fn of_capture(capture: &Capture) -> Pod {
    Pod {
        name: capture.name.clone(),
        labels: capture.labels.clone(),
        addresses: capture.addresses.iter().copied().collect(),
        node: None,
        requires_proxy: capture.requires_proxy,
        netns: Some(capture.netns.clone()),
    }
}
