//! What one Service needs in the data plane.

use crate::address::{Endpoint, Family, Protocol};
use crate::choose::{self, Candidate, Node};
use crate::object::{Name, Port, Selection, Service, Slice, SliceEndpoint};
use crate::plane::{FrontendKey, Scope, Source};
use ipnet::IpNet;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// A port of a Service in one family and with one traffic policy: the unit that has its own backends, counters and affinity.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortKey {
    /// Whose port it is.
    pub service: Name,
    /// The port's name in the Service; empty if the Service has only one.
    pub port: Arc<str>,
    /// One Service may have a TCP port and a UDP port of the same number.
    pub protocol: Protocol,
    /// Of the frontends and of the backends: connections do not change family.
    pub family: Family,
    /// Local with `internalTrafficPolicy: Local` for the cluster IPs, and with `externalTrafficPolicy: Local` for packets from
    /// outside.
    pub policy: Policy,
}

/// The traffic policy: which endpoints serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Policy {
    /// Those of all nodes.
    Cluster,
    /// Those of this node.
    Local,
}

impl PortKey {
    /// Whether it is the same port with the other traffic policy.
    pub(crate) fn is_sibling(&self, other: &PortKey) -> bool {
        self.policy != other.policy && PortKey { policy: other.policy, ..self.clone() } == *other
    }
}

impl fmt::Display for PortKey {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}", self.service)?;
        if !self.port.is_empty() {
            write!(f, ":{}", self.port)?;
        }
        write!(f, " {}", self.protocol)
    }
}

/// The port's frontends, and the backends behind all of them.
#[derive(Clone, Debug, PartialEq)]
pub struct PortTable {
    /// Says which part of the Service this is.
    pub key: PortKey,
    /// As [`Service::affinity_seconds`]; 0: no affinity.
    pub affinity_seconds: u32,
    /// How a backend is chosen from `list`.
    pub selection: Selection,
    /// Each once. Another Service may own some of them. Never empty.
    pub frontends: Vec<FrontendKey>,
    /// Frontends to which no program of the node may bind: NodePorts and external addresses. Cluster IPs and load balancers'
    /// addresses are not among them: a program may serve there if it has added the address to the node itself.
    pub held: BTreeSet<FrontendKey>,
    /// Frontends that only the networks of `source_ranges` may use.
    pub restricted: BTreeSet<FrontendKey>,
    /// Of the family of `key`.
    pub source_ranges: BTreeSet<IpNet>,
    /// Ordered by address. Empty: connections are refused.
    pub list: Vec<Backend>,
    /// Endpoints outside of the list that serve: they terminate, topology hints lead to others, or their weight is 0. Datagrams that go to
    /// one already go on, as TCP connections do. None with affinity, whose clients are to leave them.
    pub lasting: BTreeSet<Endpoint>,
    /// The list is empty because of the traffic policy alone: endpoints of other nodes serve.
    pub elsewhere: bool,
}

impl PortTable {
    /// Whether choices are remembered: for datagrams, and with affinity.
    pub(crate) fn remembers(&self) -> bool {
        self.key.protocol == Protocol::Udp || self.affinity_seconds > 0
    }

    /// Whether packets get the node's address as their source: with policy Local, and within the cluster, they keep theirs.
    pub(crate) fn is_masqueraded(&self, key: &FrontendKey) -> bool {
        self.key.policy == Policy::Cluster && matches!(key.scope, Scope::External | Scope::ExternalNode)
    }

    /// The networks of `source_ranges`, for the port with this number.
    pub(crate) fn sources(&self, service: u32) -> BTreeSet<Source> {
        self.source_ranges.iter().map(|network| Source::new(service, network)).collect()
    }

    /// The endpoints in the list.
    pub fn endpoints(&self) -> BTreeSet<Endpoint> {
        self.list.iter().map(|backend| backend.endpoint).collect()
    }

    /// The endpoints in the list, and those that last.
    pub fn kept(&self) -> BTreeSet<Endpoint> {
        self.list.iter().map(|backend| backend.endpoint).chain(self.lasting.iter().copied()).collect()
    }
}

/// An endpoint that serves on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Each appears once in a list.
    pub endpoint: Endpoint,
    /// Share of the connections, relative to the others; 1 unless the Service asks for weights. Never 0.
    pub weight: u32,
}

/// The tables of a Service: one for each port, each family in which it has a cluster IP, and each traffic policy. In a family
/// without a cluster IP its external addresses do not count. Tables without a frontend are left out.
pub(crate) fn of(service: &Service, slices: &[&Slice], node: &Node) -> Vec<PortTable> {
    let has_address = |family: &Family| service.cluster_ips.iter().any(|ip| Family::of(*ip) == *family);
    let families: Vec<Family> = Family::BOTH.into_iter().filter(has_address).collect();
    let each = service.ports.iter().flat_map(|port| families.iter().map(move |family| (port, *family)));
    each.flat_map(|(port, family)| tables(service, port, family, slices, node)).collect()
}

/// Programs on this node are never external clients, so the external traffic policy applies only to packets from outside.
fn tables(service: &Service, port: &Port, family: Family, slices: &[&Slice], node: &Node) -> Vec<PortTable> {
    let candidates = candidates(port, family, slices, node);
    let (inside, outside) = (inside(service, port, family), outside(service, port, family));
    let packets = |scopes| if node.external { packets(service, port, family, scopes) } else { Vec::new() };
    let external = packets([Scope::External, Scope::ExternalNode]);
    // Pods are no external clients either.
    let of_pods = if service.external_local { packets([Scope::Pod, Scope::PodNode]) } else { Vec::new() };
    let (mut cluster, mut local) = (Vec::new(), Vec::new());
    if service.internal_local { &mut local } else { &mut cluster }.extend(inside);
    cluster.extend(outside.into_iter().chain(of_pods));
    if service.external_local { &mut local } else { &mut cluster }.extend(external);
    let split = [(Policy::Cluster, cluster), (Policy::Local, local)];
    // A set, since a tenant may list as many addresses as an object holds.
    let external_ips: BTreeSet<IpAddr> = service.external_ips.iter().copied().collect();
    let is_held = |key: &FrontendKey| {
        key.scope == Scope::Node || (key.scope == Scope::Address && external_ips.contains(&key.address.ip()))
    };
    let is_restricted = |key: &FrontendKey| key.scope.is_of_packets() && service.is_restricted(key.address.ip());
    let table = |(policy, frontends): (Policy, Vec<FrontendKey>)| {
        let chosen = match policy {
            Policy::Cluster => choose::cluster(&candidates, node),
            Policy::Local => choose::local(&candidates, node),
        };
        let (name, protocol) = (port.name.clone(), port.protocol);
        let list = backends(&chosen, service.selection);
        PortTable {
            lasting: match protocol == Protocol::Udp && service.affinity_seconds.is_none() {
                true => lasting(candidates.iter().filter(|c| policy == Policy::Cluster || c.is_local(node)), &list),
                false => BTreeSet::new(),
            },
            restricted: frontends.iter().copied().filter(is_restricted).collect(),
            source_ranges: match frontends.iter().any(is_restricted) {
                true => service.ranges_of(family).copied().collect(),
                false => BTreeSet::new(),
            },
            held: frontends.iter().copied().filter(is_held).collect(),
            key: PortKey { service: service.name.clone(), port: name, protocol, family, policy },
            affinity_seconds: service.affinity_seconds.unwrap_or(0),
            selection: service.selection,
            frontends,
            elsewhere: chosen.is_empty() && !choose::cluster(&candidates, node).is_empty(),
            list,
        }
    };
    split.into_iter().filter(|(_, frontends)| !frontends.is_empty()).map(table).collect()
}

fn at(ip: IpAddr, port: &Port) -> FrontendKey {
    FrontendKey { address: ip.into(), port: port.port, protocol: port.protocol, scope: Scope::Address }
}

/// Frontends at the cluster IPs.
fn inside(service: &Service, port: &Port, family: Family) -> Vec<FrontendKey> {
    let of_family: BTreeSet<_> = service.cluster_ips.iter().filter(|ip| Family::of(**ip) == family).collect();
    of_family.into_iter().map(|ip| at(*ip, port)).collect()
}

/// Frontends for external clients. An address that is also a cluster IP counts as a cluster IP. One that only some sources may use
/// is left to packets, for a socket that dials it need not have an address yet.
fn outside(service: &Service, port: &Port, family: Family) -> Vec<FrontendKey> {
    let named = external_ips(service, family).filter(|ip| !service.is_restricted(*ip));
    named.map(|ip| at(ip, port)).chain(of_node(port, family, Scope::Node)).collect()
}

/// The same frontends for packets: all of them.
fn packets(service: &Service, port: &Port, family: Family, [address, node]: [Scope; 2]) -> Vec<FrontendKey> {
    let named = external_ips(service, family).map(|ip| FrontendKey { scope: address, ..at(ip, port) });
    named.chain(of_node(port, family, node)).collect()
}

/// Each once.
fn external_ips(service: &Service, family: Family) -> impl Iterator<Item = IpAddr> {
    let all = service.external_ips.iter().chain(&service.load_balancer_ips);
    let is_its = |ip: &&IpAddr| Family::of(**ip) == family && !service.cluster_ips.contains(ip);
    all.filter(is_its).copied().collect::<BTreeSet<_>>().into_iter()
}

fn of_node(port: &Port, family: Family, scope: Scope) -> Option<FrontendKey> {
    let key = |number| FrontendKey { address: family.unspecified(), port: number, protocol: port.protocol, scope };
    port.node_port.map(key)
}

/// All endpoints of the Service, ready or not.
pub(crate) fn every_endpoint(service: &Service, slices: &[&Slice], protocol: Protocol) -> BTreeSet<Endpoint> {
    let ports = service.ports.iter().filter(|port| port.protocol == protocol);
    let each = ports.flat_map(|port| Family::BOTH.map(|family| (port, family)));
    let of = each.flat_map(|(port, family)| slices.iter().flat_map(move |slice| of_slice(port, family, slice)));
    of.map(|candidate| candidate.endpoint).collect()
}

/// The endpoints of a port, each once. If several have one address, as when a pod has taken over that of another one, the first that
/// does not terminate counts; among those the first that is on this node.
fn candidates<'a>(port: &Port, family: Family, slices: &[&'a Slice], node: &Node) -> Vec<Candidate<'a>> {
    let mut found: Vec<Candidate> = Vec::new();
    let mut places: HashMap<Endpoint, usize> = HashMap::new();
    let rank = |candidate: &Candidate| (!candidate.of.terminating, candidate.is_local(node));
    for candidate in slices.iter().flat_map(|slice| of_slice(port, family, slice)) {
        match places.get(&candidate.endpoint) {
            Some(place) if rank(&candidate) > rank(&found[*place]) => found[*place] = candidate,
            Some(_) => {}
            None => {
                places.insert(candidate.endpoint, found.len());
                found.push(candidate);
            }
        }
    }
    found
}

fn of_slice<'a>(port: &Port, family: Family, slice: &'a Slice) -> impl Iterator<Item = Candidate<'a>> {
    let target = slice.ports.iter().find(|p| p.name == port.name && p.protocol == port.protocol).map(|p| p.port);
    let candidate = move |of: &'a SliceEndpoint| {
        let weight = slice.weights.get(&of.address).copied().unwrap_or(1);
        target.map(|number| Candidate { endpoint: Endpoint::new(of.address, number), weight, of })
    };
    slice.endpoints.iter().filter(move |e| Family::of(e.address) == family).filter_map(candidate)
}

/// Ordered by address, so that the same endpoints always give the same list.
fn backends(chosen: &[Candidate], selection: Selection) -> Vec<Backend> {
    let weight = |c: &Candidate| if selection == Selection::Weighted { c.weight } else { 1 };
    let mut list: Vec<_> = chosen.iter().map(|c| Backend { endpoint: c.endpoint, weight: weight(c) }).collect();
    list.retain(|backend| backend.weight > 0);
    list.sort_by_key(|backend| backend.endpoint);
    list
}

/// The endpoints that serve, but are not in the list.
fn lasting<'a, 'b: 'a>(candidates: impl Iterator<Item = &'a Candidate<'b>>, list: &[Backend]) -> BTreeSet<Endpoint> {
    let listed: BTreeSet<Endpoint> = list.iter().map(|backend| backend.endpoint).collect();
    let serving = candidates.filter(|candidate| candidate.of.serving).map(|candidate| candidate.endpoint);
    serving.filter(|endpoint| !listed.contains(endpoint)).collect()
}
