//! What one Service wants of the data plane.

use crate::address::{Endpoint, Family, Protocol};
use crate::choose::{self, Candidate, Node};
use crate::object::{Name, Port, Selection, Service, Slice, SliceEndpoint};
use crate::plane::{FrontendKey, Scope};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// A port of a Service in one family: what has its own backends, counters and affinity.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortKey {
    pub service: Name,
    pub port: Arc<str>,
    pub protocol: Protocol,
    pub family: Family,
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

/// Its frontends and the backends behind them.
#[derive(Clone, Debug, PartialEq)]
pub struct PortTable {
    pub key: PortKey,
    pub affinity_seconds: u32,
    pub selection: Selection,
    /// Lists that frontends share, by their place in `lists`.
    pub frontends: Vec<(FrontendKey, usize)>,
    /// Those that the node keeps for itself: NodePorts and external addresses. Whoever makes an address of the cluster
    /// or of a load balancer its own on the node may serve there.
    pub held: BTreeSet<FrontendKey>,
    pub lists: Vec<Vec<Backend>>,
}

impl PortTable {
    /// Every backend of every list, once.
    pub fn endpoints(&self) -> BTreeSet<Endpoint> {
        self.lists.iter().flatten().map(|backend| backend.endpoint).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backend {
    pub endpoint: Endpoint,
    pub weight: u32,
}

/// The tables of a Service, a port and family each. Parts that have no frontend are left out.
pub fn of(service: &Service, slices: &[&Slice], node: &Node) -> Vec<PortTable> {
    let both = service.ports.iter().flat_map(|port| Family::BOTH.map(|family| (port, family)));
    both.map(|(port, family)| table(service, port, family, slices, node)).filter(|t| !t.frontends.is_empty()).collect()
}

fn table(service: &Service, port: &Port, family: Family, slices: &[&Slice], node: &Node) -> PortTable {
    let candidates = candidates(port, family, slices, node);
    let everywhere = backends(&choose::cluster(&candidates, node), service.selection);
    let here = service.internal_local.then(|| backends(&choose::local(&candidates, node), service.selection));
    // A program on this node is no external client: the external policy does not concern it.
    let internal = usize::from(service.internal_local);
    let inside = service.cluster_ips.iter().map(|ip| (*ip, internal));
    let outside = service.external_ips.iter().chain(&service.load_balancer_ips).map(|ip| (*ip, 0));
    // An address that is named twice is the cluster's.
    let mut named = BTreeSet::new();
    let first_named = |(ip, _): &(IpAddr, usize)| Family::of(*ip) == family && named.insert(*ip);
    let at = |(ip, list): (IpAddr, usize)| {
        let key = FrontendKey { address: ip.into(), port: port.port, protocol: port.protocol, scope: Scope::Address };
        (key, list)
    };
    let mut frontends: Vec<_> = inside.chain(outside).filter(first_named).map(at).collect();
    // A Service answers at NodePorts in the families in which it has an address in the cluster.
    let has_family = service.cluster_ips.iter().any(|ip| Family::of(*ip) == family);
    frontends.extend(port.node_port.filter(|_| has_family).map(|number| {
        let (address, protocol) = (family.unspecified(), port.protocol);
        (FrontendKey { address, port: number, protocol, scope: Scope::Node }, 0)
    }));
    let is_held = |key: &FrontendKey| key.scope == Scope::Node || service.external_ips.contains(&key.address.ip());
    PortTable {
        held: frontends.iter().map(|(key, _)| *key).filter(is_held).collect(),
        key: PortKey { service: service.name.clone(), port: port.name.clone(), protocol: port.protocol, family },
        affinity_seconds: service.affinity_seconds.unwrap_or(0),
        selection: service.selection,
        frontends,
        lists: std::iter::once(everywhere).chain(here).collect(),
    }
}

/// The endpoints of a port, each once. Where slices overlap the first one's word counts, unless a later one knows the
/// endpoint to be on this node.
fn candidates<'a>(port: &Port, family: Family, slices: &[&'a Slice], node: &Node) -> Vec<Candidate<'a>> {
    let mut found: Vec<Candidate> = Vec::new();
    let mut places: HashMap<Endpoint, usize> = HashMap::new();
    for candidate in slices.iter().flat_map(|slice| of_slice(port, family, slice)) {
        match places.get(&candidate.endpoint) {
            Some(place) if candidate.is_local(node) => found[*place] = candidate,
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

/// In the order of their addresses, so that the same endpoints always make the same list.
fn backends(chosen: &[Candidate], selection: Selection) -> Vec<Backend> {
    let weight = |c: &Candidate| if selection == Selection::Weighted { c.weight } else { 1 };
    let mut list: Vec<_> = chosen.iter().map(|c| Backend { endpoint: c.endpoint, weight: weight(c) }).collect();
    list.retain(|backend| backend.weight > 0);
    list.sort_by_key(|backend| backend.endpoint);
    list
}
