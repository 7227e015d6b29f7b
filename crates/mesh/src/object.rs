//! Services, EndpointSlices, pods and policies, reduced to what matters here, from whatever source.

pub use crate::name::Name;

use crate::address::{Family, Protocol};
use crate::capture::pod::Capture;
use crate::pod::{Namespace, Pod};
use crate::policy::rules::Policy;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// An object from a source.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    /// From a v1 Service.
    Service(Service),
    /// From a discovery.k8s.io/v1 EndpointSlice.
    Slice(Slice),
    /// From a document of kind Capture, which exists in files only.
    Capture(Box<Capture>),
    /// From a v1 Pod.
    Pod(Pod),
    /// From a v1 Namespace.
    Namespace(Namespace),
    /// From a document of kind Policy.
    Policy(Policy),
    /// From a networking.k8s.io/v1 NetworkPolicy with this name.
    NetworkPolicy(Name, Policy),
}

impl Service {
    /// Whether only some sources may use this address.
    pub(crate) fn is_restricted(&self, ip: IpAddr) -> bool {
        self.ranges_of(Family::of(ip)).next().is_some() && self.load_balancer_ips.contains(&ip)
    }

    /// The source ranges of a family.
    pub(crate) fn ranges_of(&self, family: Family) -> impl Iterator<Item = &IpNet> {
        self.source_ranges.iter().filter(move |range| Family::of(range.addr()) == family)
    }
}

impl Object {
    /// Under which the [`State`](crate::state::State) keeps it: a second object with this key replaces it.
    pub fn key(&self) -> Key {
        match self {
            Object::Service(service) => Key::Service(service.name.clone()),
            Object::Slice(slice) => Key::Slice(slice.name.clone()),
            Object::Capture(capture) => Key::Capture(capture.name.clone()),
            Object::Pod(pod) => Key::Pod(pod.name.clone()),
            Object::Namespace(namespace) => Key::Namespace(namespace.name.clone()),
            Object::Policy(policy) => Key::Policy(policy.name.clone()),
            Object::NetworkPolicy(name, _) => Key::NetworkPolicy(name.clone()),
        }
    }
}

/// Kind and name of an object. Printed with Kubernetes' name of the kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// A v1 Service.
    Service(Name),
    /// An EndpointSlice, by its own name, not by its Service's.
    Slice(Name),
    /// A document of kind Capture.
    Capture(Name),
    /// A v1 Pod.
    Pod(Name),
    /// A v1 Namespace; namespaces are in no namespace.
    Namespace(Arc<str>),
    /// A document of kind Policy.
    Policy(Name),
    /// A networking.k8s.io/v1 NetworkPolicy.
    NetworkPolicy(Name),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Key::Service(name) => write!(f, "Service {name}"),
            Key::Slice(name) => write!(f, "EndpointSlice {name}"),
            Key::Capture(name) => write!(f, "Capture {name}"),
            Key::Pod(name) => write!(f, "Pod {name}"),
            Key::Namespace(name) => write!(f, "Namespace {name}"),
            Key::Policy(name) => write!(f, "Policy {name}"),
            Key::NetworkPolicy(name) => write!(f, "NetworkPolicy {name}"),
        }
    }
}

/// A v1 Service. Fields that do not matter for balancing are left out.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// From `metadata`.
    pub name: Name,
    /// `spec.clusterIPs`, or `spec.clusterIP` alone; empty for headless Services.
    pub cluster_ips: Vec<IpAddr>,
    /// `spec.externalIPs`
    pub external_ips: Vec<IpAddr>,
    /// `status.loadBalancer.ingress[].ip`, where the node answers itself, not with ipMode Proxy.
    pub load_balancer_ips: Vec<IpAddr>,
    /// `spec.loadBalancerSourceRanges`: only these sources may use a load balancer's address of their family. A family without a
    /// range is not restricted.
    pub source_ranges: Vec<IpNet>,
    /// `spec.ports` without SCTP. Empty if nothing is to be programmed, as for ExternalName.
    pub ports: Vec<Port>,
    /// With `sessionAffinity: ClientIP`, how many seconds after the last use a client's backend is forgotten. None: no affinity.
    pub affinity_seconds: Option<u32>,
    /// `internalTrafficPolicy: Local`: cluster IPs lead only to endpoints of the client's node.
    pub internal_local: bool,
    /// `externalTrafficPolicy: Local`: what arrives from outside goes only to endpoints of this node, and keeps its source.
    pub external_local: bool,
    /// `spec.healthCheckNodePort`, where load balancers ask whether a node has endpoints.
    pub health_check_port: Option<u16>,
    /// The annotation `sidestep.dev/selection`.
    pub selection: Selection,
    /// Which connections may bypass the proxies.
    pub bypass: Bypass,
    /// RFC 3339, so that the order of texts is the order of times. Of two Services that claim one address and port the older
    /// one owns it.
    pub created: String,
    /// Unsupported parts, and why.
    pub left: Vec<Skipped>,
}

/// An element of `spec.ports` of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Slices give the backends' port number under this name. Empty if the Service has only one port.
    pub name: Arc<str>,
    /// TCP if the object names none.
    pub protocol: Protocol,
    /// The number that clients dial at a cluster IP, external address or load balancer's address.
    pub port: u16,
    /// The number that clients dial at an address of the node. None: the Service has no NodePort.
    pub node_port: Option<u16>,
}

/// How a backend is chosen for a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Selection {
    /// All backends are equally likely.
    #[default]
    Random,
    /// Backends are chosen in proportion to their weights.
    Weighted,
    /// Of two random backends, the one with fewer open connections.
    LeastConnections,
}

/// Which connections of a Service may bypass the proxies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bypass {
    /// `false`, and the default: all connections go through the proxies that capture them.
    #[default]
    Nobody,
    /// `outbound`, the clients' side only: servers still receive through their proxies, in plain text. The first step to `Both`.
    Clients,
    /// `true`: clients and servers.
    Both,
}

/// A part of a Service, or of one of its slices, that is not programmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Names the part, such as `port 5060` or an address.
    pub what: String,
    /// The reason, in words that can follow a colon.
    pub why: &'static str,
}

/// A discovery.k8s.io/v1 EndpointSlice that belongs to a Service.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    /// From `metadata`; not the Service's name.
    pub name: Name,
    /// Its Service, in the same namespace: the label `kubernetes.io/service-name`.
    pub service: Arc<str>,
    /// Of the backends. SCTP ports, and ports without a number from 1 to 65535, are left out.
    pub ports: Vec<SlicePort>,
    /// Without those at multicast and broadcast addresses. Whether they are ready does not matter here.
    pub endpoints: Vec<SliceEndpoint>,
    /// The annotation `sidestep.dev/weights`, by address; the default is 1, and 0 means no connections.
    pub weights: BTreeMap<IpAddr, u32>,
    /// Parts that are not used, and why; reported with its Service.
    pub left: Vec<Skipped>,
}

/// An element of a slice's `ports`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlicePort {
    /// The name of the Service's port; empty as there.
    pub name: Arc<str>,
    /// Must be the Service port's protocol as well.
    pub protocol: Protocol,
    /// The number at which the backends listen.
    pub port: u16,
}

/// An element of a slice's `endpoints`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceEndpoint {
    /// The first of `addresses`, which all reach the same pod.
    pub address: IpAddr,
    /// `conditions.ready`; true if it is missing.
    pub ready: bool,
    /// `conditions.serving`; true if it is missing. Stays true while a pod that terminates still answers.
    pub serving: bool,
    /// `conditions.terminating`; false if it is missing.
    pub terminating: bool,
    /// `nodeName`. None: it counts as local nowhere.
    pub node: Option<Arc<str>>,
    /// `hints.forZones`: clients in these zones should use it. Empty: no hint.
    pub zone_hints: BTreeSet<Arc<str>>,
    /// `hints.forNodes`: clients on these nodes should use it; outweighs `zone_hints`. Empty: no hint.
    pub node_hints: BTreeSet<Arc<str>>,
}
