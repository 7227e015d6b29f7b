//! The bypass of both proxies. Where everything that is configured for a Service is done without a proxy (balancing, policy,
//! counters), a connection goes straight from the program to the backend. A Service must ask for the bypass, and it is refused
//! for connections that anybody requires to go through a proxy.

use crate::address::{Endpoint, Protocol};
use crate::choose::Node;
use crate::object::{Bypass, Name, Service};
use crate::plane::{FrontendKey, Scope};
use crate::policy::plan::requires_proxy;
use crate::state::State;
use crate::table;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Mirrors `enum bypass_flags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BypassFlags {
    /// Clients that dial this address need no proxy.
    pub outbound: bool,
    /// Servers at this address need no proxy.
    pub inbound: bool,
}

/// The bypass for all Services of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Frontends, and backends by their own addresses.
    pub bypasses: BTreeMap<FrontendKey, BypassFlags>,
    /// Services whose request is refused.
    pub refused: BTreeMap<Name, Refusal>,
}

/// Why a Service's connections go through proxies although the Service asks for the bypass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A pod that serves the Service requires its proxy.
    Required {
        /// Where the pod serves the Service.
        endpoint: Endpoint,
        /// It, its namespace or a policy requires the proxy.
        pod: Name,
    },
    /// The endpoint also serves another Service, whose clients send through their proxies.
    Shared {
        /// The endpoint of both Services.
        endpoint: Endpoint,
        /// It does not ask for the bypass, or only for its clients.
        service: Name,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Refusal::Required { endpoint, pod } => write!(f, "{endpoint}: the pod {pod} requires its proxy"),
            Refusal::Shared { endpoint, service } => {
                write!(f, "{endpoint} serves {service} as well, which does not ask for it")
            }
        }
    }
}

/// `owns` says whether the frontend is the Service's: two Services may want the same address.
pub fn plan(state: &State, node: &Node, owns: impl Fn(&FrontendKey, &Name) -> bool) -> Plan {
    let mut plan = Plan::default();
    let asking = || state.services().filter(|service| service.bypass != Bypass::Nobody);
    if asking().next().is_none() {
        return plan;
    }
    let facts = Facts::new(state);
    for service in asking() {
        let endpoints = endpoints(state, service);
        match endpoints.iter().find_map(|endpoint| facts.refusal(endpoint, service.bypass)) {
            Some(refusal) => drop(plan.refused.insert(service.name.clone(), refusal)),
            None => {
                let own = endpoints.into_iter().filter(|at| facts.is_of(&service.name, at)).collect();
                plan.add(service, state, node, &own, &owns);
            }
        }
    }
    plan
}

/// What all Services and pods together say about endpoints.
struct Facts {
    /// Pods that require their proxy, by address.
    required: BTreeMap<IpAddr, Name>,
    /// Services that do not ask for the bypass, and those that ask for it for clients only, by endpoint.
    others: BTreeMap<Endpoint, Name>,
    halves: BTreeMap<Endpoint, Name>,
    /// Namespaces of the pods with each address.
    owners: BTreeMap<IpAddr, BTreeSet<Arc<str>>>,
}

impl Facts {
    fn new(state: &State) -> Facts {
        let pods = state.pods();
        let requiring = pods.values().filter(|pod| requires_proxy(state, pod));
        let of = |bypass| {
            let services = state.services().filter(move |service| service.bypass == bypass);
            let each = services.flat_map(|one| endpoints(state, one).into_iter().map(|at| (at, one.name.clone())));
            each.collect()
        };
        let mut owners = BTreeMap::<IpAddr, BTreeSet<Arc<str>>>::new();
        for pod in pods.values() {
            for ip in &pod.addresses {
                owners.entry(*ip).or_default().insert(pod.name.namespace.clone());
            }
        }
        Facts {
            owners,
            required: requiring.flat_map(|pod| pod.addresses.iter().map(|ip| (*ip, pod.name.clone()))).collect(),
            others: of(Bypass::Nobody),
            halves: of(Bypass::Clients),
        }
    }

    /// Whether the endpoint is a pod of the Service's own namespace. Anybody may name any address as an endpoint of a Service.
    fn is_of(&self, service: &Name, endpoint: &Endpoint) -> bool {
        let owners = self.owners.get(&endpoint.address.ip());
        owners.is_some_and(|owners| owners.iter().eq([&service.namespace]))
    }

    fn refusal(&self, endpoint: &Endpoint, bypass: Bypass) -> Option<Refusal> {
        let endpoint = *endpoint;
        if let Some(pod) = self.required.get(&endpoint.address.ip()) {
            return Some(Refusal::Required { endpoint, pod: pod.clone() });
        }
        let half = self.halves.get(&endpoint).filter(|_| bypass == Bypass::Both);
        let service = self.others.get(&endpoint).or(half)?;
        Some(Refusal::Shared { endpoint, service: service.clone() })
    }
}

fn endpoints(state: &State, service: &Service) -> BTreeSet<Endpoint> {
    table::every_endpoint(service, &state.slices(&service.name), Protocol::Tcp)
}

impl Plan {
    fn add(
        &mut self,
        service: &Service,
        state: &State,
        node: &Node,
        own: &BTreeSet<Endpoint>,
        owns: &impl Fn(&FrontendKey, &Name) -> bool,
    ) {
        let tables = table::of(service, &state.slices(&service.name), node);
        let frontends = tables.into_iter().flat_map(|table| table.frontends);
        let mine = frontends.filter(|key| key.protocol == Protocol::Tcp && owns(key, &service.name));
        self.bypasses.extend(mine.map(|key| (key, BypassFlags { outbound: true, inbound: false })));
        let flags = BypassFlags { outbound: true, inbound: service.bypass == Bypass::Both };
        self.bypasses.extend(own.iter().map(|endpoint| (backend_key(*endpoint), flags)));
    }
}

/// The key under which a backend's own address is looked up.
pub fn backend_key(at: Endpoint) -> FrontendKey {
    FrontendKey { address: at.address, port: at.port, protocol: Protocol::Tcp, scope: Scope::Address }
}
