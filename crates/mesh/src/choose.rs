//! Endpoint selection: which endpoints of a Service serve on this node, by readiness, traffic policy, topology hints and
//! termination, as kube-proxy decides it.

use crate::address::{Endpoint, Family};
use crate::object::{Slice, SliceEndpoint};
use std::collections::BTreeSet;
use std::sync::Arc;

/// This node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// As EndpointSlices name it in `nodeName`: the agent's setting `node-name`, or the host's name.
    pub name: Arc<str>,
    /// The node's label `topology.kubernetes.io/zone`. None: hints for zones are ignored.
    pub zone: Option<Arc<str>>,
    /// Packets to Services are translated on this node, not only what its sockets dial.
    pub external: bool,
}

/// An endpoint of one port of a Service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    /// The slice's address, with the number that the slice gives to the port's name.
    pub endpoint: Endpoint,
    /// From the slice's annotation `sidestep.dev/weights`; 1 by default. Used only if the Service asks for
    /// weights.
    pub weight: u32,
    /// Where its conditions and hints are.
    pub of: &'a SliceEndpoint,
}

impl Candidate<'_> {
    /// Whether it runs on this node. An endpoint without `nodeName` does not.
    pub(crate) fn is_local(&self, node: &Node) -> bool {
        self.of.node.as_ref() == Some(&node.name)
    }

    fn is_draining(&self) -> bool {
        self.of.serving && self.of.terminating
    }
}

/// The endpoints for policy Cluster: the ready ones that are near enough; if no endpoint is ready, those that terminate but
/// still serve.
pub(crate) fn cluster<'a>(candidates: &[Candidate<'a>], node: &Node) -> Vec<Candidate<'a>> {
    let ready: Vec<_> = candidates.iter().filter(|c| c.of.ready).copied().collect();
    let near = near(&ready, node);
    if near.is_empty() { candidates.iter().filter(|c| c.is_draining()).copied().collect() } else { near }
}

/// The endpoints for policy Local: those on this node, by the same rule, but without topology hints.
pub(crate) fn local<'a>(candidates: &[Candidate<'a>], node: &Node) -> Vec<Candidate<'a>> {
    let mine: Vec<_> = candidates.iter().filter(|c| c.is_local(node)).copied().collect();
    let ready: Vec<_> = mine.iter().filter(|c| c.of.ready).copied().collect();
    if ready.is_empty() { mine.into_iter().filter(|c| c.is_draining()).collect() } else { ready }
}

/// How many ready endpoints of a Service are on this node, of one family, and of slices that name a port.
pub fn ready_here(slices: &[&Slice], node: &Node, family: Family) -> usize {
    let endpoints = slices.iter().filter(|slice| !slice.ports.is_empty()).flat_map(|slice| &slice.endpoints);
    let here = endpoints.filter(|one| one.ready && one.node.as_ref() == Some(&node.name));
    here.filter(|one| Family::of(one.address) == family).map(|one| one.address).collect::<BTreeSet<_>>().len()
}

/// Hints count only if every ready endpoint has one, and one of them names this node, or else this zone.
fn near<'a>(ready: &[Candidate<'a>], node: &Node) -> Vec<Candidate<'a>> {
    let is_here = |c: &Candidate| c.of.node_hints.contains(&node.name);
    let is_in_zone = |c: &Candidate| node.zone.as_ref().is_some_and(|zone| c.of.zone_hints.contains(zone));
    let all_name_nodes = ready.iter().all(|c| !c.of.node_hints.is_empty());
    let all_name_zones = ready.iter().all(|c| !c.of.zone_hints.is_empty());
    if all_name_nodes && ready.iter().any(is_here) {
        ready.iter().filter(|c| is_here(c)).copied().collect()
    } else if all_name_zones && ready.iter().any(is_in_zone) {
        ready.iter().filter(|c| is_in_zone(c)).copied().collect()
    } else {
        ready.to_vec()
    }
}
