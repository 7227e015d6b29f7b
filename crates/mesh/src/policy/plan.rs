//! Everything that has to be written: the identities of addresses, and the policies of each pod.

use super::compile::{Compiler, refused};
use super::identity::{Identities, Identity, NODE, named_by};
use super::rules::{Direction, Labels, NamedPorts, Policy};
use super::tables::Compiled;
use crate::address::Address;
use crate::object::Name;
use crate::pod::Pod;
use crate::state::State;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::ptr;
use std::sync::Arc;

/// What the data plane needs for all policies of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Of all pods of the cluster, and of the node itself, by address.
    pub identities: BTreeMap<Address, Known>,
    /// Pods that policies select.
    pub pods: BTreeMap<Name, Planned>,
}

/// The identity of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Number in [`Identities`], or [`NODE`].
    pub identity: u32,
    /// Connections with this address never bypass the proxy; see [`requires_proxy`].
    pub requires_proxy: bool,
}

/// A pod of this node whose connections must be evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Says where its network namespace is found.
    pub pod: Arc<Pod>,
    /// Shared by pods of one kind.
    pub compiled: Arc<Compiled>,
}

/// `node`: this node's own addresses. `is_here`: whether a pod is on this node.
pub fn plan(state: &State, known: &mut Identities, node: &BTreeSet<IpAddr>, is_here: impl Fn(&Pod) -> bool) -> Plan {
    let pods = state.pods();
    let identities = identities(state, &pods, known, node);
    let known = &*known;
    let mut namespaces: BTreeMap<&str, Kinds> = BTreeMap::new();
    let mut planned = BTreeMap::new();
    for pod in pods.values().filter(|pod| is_here(pod)) {
        let namespace = &*pod.name.namespace;
        let kinds = namespaces.entry(namespace).or_insert_with(|| Kinds::new(state, known, namespace));
        let compiled = kinds.compiled(pod);
        if Direction::BOTH.iter().any(|direction| *compiled.defaults.at(*direction) != 0) {
            planned.insert(pod.name.clone(), Planned { pod: Arc::clone(pod), compiled });
        }
    }
    Plan { identities, pods: planned }
}

/// The kinds of pods of one Kubernetes namespace. Their policies have one budget: a tenant has as many kinds of pods as it likes.
struct Kinds<'a> {
    /// Of the namespace, in the order of their names.
    policies: Vec<&'a Policy>,
    compiler: Compiler<'a>,
    by_kind: HashMap<(&'a Labels, &'a NamedPorts), Arc<Compiled>>,
    /// By the policies that select a pod, and its named ports if these policies name any: many kinds have the same.
    by_policies: HashMap<(Vec<*const Policy>, Option<&'a NamedPorts>), Arc<Compiled>>,
}

impl<'a> Kinds<'a> {
    fn new(state: &'a State, known: &'a Identities, namespace: &str) -> Kinds<'a> {
        Kinds {
            policies: state.policies().filter(|policy| *policy.name.namespace == *namespace).collect(),
            compiler: Compiler::new(known),
            by_kind: HashMap::new(),
            by_policies: HashMap::new(),
        }
    }

    /// The policies that select the pod.
    fn compiled(&mut self, pod: &'a Pod) -> Arc<Compiled> {
        let kind = (&*pod.labels, &pod.ports);
        if let Some(compiled) = self.by_kind.get(&kind) {
            return Arc::clone(compiled);
        }
        let compiled = self.compile(pod);
        self.by_kind.insert(kind, Arc::clone(&compiled));
        compiled
    }

    fn compile(&mut self, pod: &'a Pod) -> Arc<Compiled> {
        let selecting = match self.compiler.selecting(&self.policies, &pod.labels) {
            Ok(selecting) => selecting,
            // Any of them may select the pod.
            Err(why) => return Arc::new(refused(&self.policies, why)),
        };
        let own_ports = selecting.iter().any(|policy| policy.names_own_ports()).then_some(&pod.ports);
        let policies = selecting.iter().copied().map(ptr::from_ref).collect();
        let compiler = &mut self.compiler;
        let compile = || Arc::new(compiler.compile(&selecting, &pod.ports));
        Arc::clone(self.by_policies.entry((policies, own_ports)).or_insert_with(compile))
    }
}

/// The policies that select a pod, in the order of their names.
pub fn policies_of<'a>(state: &'a State, pod: &Pod) -> impl Iterator<Item = &'a Policy> {
    state.policies().filter(move |policy| policy.selects(&pod.name.namespace, &pod.labels))
}

/// Whether anything requires that the pod's connections go through its proxy.
pub fn requires_proxy(state: &State, pod: &Pod) -> bool {
    pod.requires_proxy || is_kind_to_be_proxied(state, pod)
}

/// Whether anything but the pod itself requires it.
fn is_kind_to_be_proxied(state: &State, pod: &Pod) -> bool {
    let of_namespace = state.namespace(&pod.name.namespace).is_some_and(|namespace| namespace.requires_proxy);
    // No NetworkPolicy requires it, so selectors that any tenant writes are not looked at.
    let mut requiring = state.policies().filter(|policy| policy.requires_proxy);
    of_namespace || requiring.any(|policy| policy.selects(&pod.name.namespace, &pod.labels))
}

/// An address that two pods claim has no identity until the conflict is over.
fn identities(
    state: &State,
    pods: &BTreeMap<Name, Arc<Pod>>,
    known: &mut Identities,
    node: &BTreeSet<IpAddr>,
) -> BTreeMap<Address, Known> {
    let mut found: BTreeMap<Address, Option<Known>> = BTreeMap::new();
    let named = named_by(state.policies());
    // Pods of a kind share their labels, and there may be a hundred thousand pods of a thousand kinds.
    let mut kinds: HashMap<(&str, *const Labels, &NamedPorts), Known> = HashMap::new();
    for pod in pods.values().filter(|pod| !pod.addresses.is_empty()) {
        let kind = (&*pod.name.namespace, Arc::as_ptr(&pod.labels), &pod.ports);
        let of_kind = kinds.entry(kind).or_insert_with(|| Known {
            identity: known.number(Identity::of(pod, state.namespace(&pod.name.namespace), &named)),
            requires_proxy: is_kind_to_be_proxied(state, pod),
        });
        let its = Known { requires_proxy: of_kind.requires_proxy || pod.requires_proxy, ..*of_kind };
        for address in &pod.addresses {
            let one = found.entry((*address).into()).or_insert(Some(its));
            *one = one.filter(|other| *other == its);
        }
    }
    let node = node.iter().map(|ip| ((*ip).into(), Some(Known { identity: NODE, requires_proxy: false })));
    found.extend(node);
    found.into_iter().filter_map(|(address, known)| Some((address, known?))).collect()
}
