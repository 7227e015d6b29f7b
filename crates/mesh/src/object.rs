//! Services, EndpointSlices, pods and policies, reduced to what matters here, from whatever source.

pub use crate::name::Name;

use crate::address::Protocol;
use crate::capture::pod::Capture;
use crate::pod::{Namespace, Pod};
use crate::policy::rules::Policy;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// An object from a source.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    Service(Service),
    Slice(Slice),
    Capture(Box<Capture>),
    Pod(Pod),
    Namespace(Namespace),
    Policy(Policy),
}

impl Object {
    pub fn key(&self) -> Key {
        match self {
            Object::Service(service) => Key::Service(service.name.clone()),
            Object::Slice(slice) => Key::Slice(slice.name.clone()),
            Object::Capture(capture) => Key::Capture(capture.name.clone()),
            Object::Pod(pod) => Key::Pod(pod.name.clone()),
            Object::Namespace(namespace) => Key::Namespace(namespace.name.clone()),
            Object::Policy(policy) => Key::Policy(policy.name.clone()),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    Service(Name),
    Slice(Name),
    Capture(Name),
    Pod(Name),
    Namespace(Arc<str>),
    Policy(Name),
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
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    pub name: Name,
    /// Empty for headless Services.
    pub cluster_ips: Vec<IpAddr>,
    pub external_ips: Vec<IpAddr>,
    /// Addresses of load balancers for which the node answers itself.
    pub load_balancer_ips: Vec<IpAddr>,
    pub ports: Vec<Port>,
    /// ClientIP affinity: seconds since the last use.
    pub affinity_seconds: Option<u32>,
    /// internalTrafficPolicy: Local
    pub internal_local: bool,
    pub selection: Selection,
    /// Which connections may bypass the proxies.
    pub bypass: Bypass,
    /// RFC 3339, so that the order of texts is the order of times. Of two Services that claim one address and port the older
    /// one owns it.
    pub created: String,
    /// Unsupported parts, and why.
    pub left: Vec<Skipped>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Empty if the Service has only one.
    pub name: Arc<str>,
    pub protocol: Protocol,
    pub port: u16,
    pub node_port: Option<u16>,
}

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
    #[default]
    Nobody,
    /// The clients' side only: servers still receive through their proxies, in plain text. The first step to `Both`.
    Clients,
    Both,
}

/// A part of a Service, or of one of its slices, that is not programmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    pub what: String,
    pub why: &'static str,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    pub name: Name,
    /// Its Service, in the same namespace.
    pub service: Arc<str>,
    pub ports: Vec<SlicePort>,
    pub endpoints: Vec<SliceEndpoint>,
    /// By address; the default is 1.
    pub weights: BTreeMap<IpAddr, u32>,
    /// Parts that are not used, and why; reported with its Service.
    pub left: Vec<Skipped>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlicePort {
    pub name: Arc<str>,
    pub protocol: Protocol,
    pub port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceEndpoint {
    pub address: IpAddr,
    pub ready: bool,
    pub serving: bool,
    pub terminating: bool,
    pub node: Option<Arc<str>>,
    pub zone_hints: BTreeSet<Arc<str>>,
    pub node_hints: BTreeSet<Arc<str>>,
}
