//! Services, EndpointSlices, pods and policies, as far as they matter here, whatever source they come from.

pub use crate::name::Name;

use crate::address::Protocol;
use crate::capture::pod::Capture;
use crate::pod::{Namespace, Pod};
use crate::policy::rules::Policy;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// What a source tells of.
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
    /// Of the load balancer, where the node is to answer for them.
    pub load_balancer_ips: Vec<IpAddr>,
    pub ports: Vec<Port>,
    /// ClientIP affinity: seconds since the last use.
    pub affinity_seconds: Option<u32>,
    /// internalTrafficPolicy: Local
    pub internal_local: bool,
    pub selection: Selection,
    /// Whether it needs proxies.
    pub bypass: Bypass,
    /// Of two Services that claim one address and port the older one has it. RFC 3339, so the order of texts is that
    /// of times.
    pub created: String,
    /// What of it is left to others, and why.
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
    /// Each backend as likely as the others.
    #[default]
    Random,
    /// As likely as its weight says.
    Weighted,
    /// Of two random backends the one with fewer open connections.
    LeastConnections,
}

/// Who of a Service's connections may go around the proxies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bypass {
    #[default]
    Nobody,
    /// Whoever dials it. Servers take in through their proxies what clients send plainly: the first step to `Both`.
    Clients,
    Both,
}

/// A part of a Service, or of a slice of it, that is not programmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    pub what: String,
    pub why: &'static str,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    pub name: Name,
    /// The Service that it belongs to, in the same namespace.
    pub service: Arc<str>,
    pub ports: Vec<SlicePort>,
    pub endpoints: Vec<SliceEndpoint>,
    /// By address; 1 where nothing is said.
    pub weights: BTreeMap<IpAddr, u32>,
    /// What of it is not used, and why: remarks of its Service.
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
