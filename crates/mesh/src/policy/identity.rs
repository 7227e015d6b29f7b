//! Identities: a namespace and its labels, a pod's labels and named ports. Policies cannot tell apart pods with the same identity,
//! so tables grow with the kinds of pods, not with their number.

use super::rules::{Labels, NamedPorts, Namespaces, Peer, Pods, Policy};
use crate::pod::{Namespace, Pod};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// All that policies can know of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    /// Where the pod is: equal labels in two namespaces are two identities.
    pub namespace: Arc<str>,
    /// The pod's labels without those that differ from one rollout or pod to the next, unless a policy names them.
    pub labels: Labels,
    /// The labels of the namespace.
    pub namespace_labels: Labels,
    /// Of the pod's containers.
    pub ports: NamedPorts,
}

/// No pod, or one that is not known yet. As the peer of a rule it stands for anybody. Mirrors `IDENTITY_UNKNOWN`.
pub const UNKNOWN: u32 = 0;
/// This node itself. Mirrors `IDENTITY_NODE`.
pub const NODE: u32 = 1;
/// The first number for pods.
pub const FIRST: u32 = 16;

/// Labels that controllers give to one generation of pods, or to one pod: with them every rollout would change identities.
pub(crate) const IGNORED: [&str; 8] = [
    "pod-template-hash",
    "pod-template-generation",
    "controller-revision-hash",
    "controller-uid",
    "batch.kubernetes.io/controller-uid",
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/job-completion-index",
];

/// A label that the API server gives to each namespace: its name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

impl Identity {
    /// `labels` are all labels of the pod; those that every rollout would change are left out. The namespace has no labels but its
    /// name, and the pod no named ports.
    pub fn new(namespace: &str, labels: &Labels) -> Identity {
        let name = (NAMESPACE_NAME.into(), namespace.into());
        Identity {
            namespace: namespace.into(),
            labels: lasting(labels, &BTreeSet::new()),
            namespace_labels: Labels::from([name]),
            ports: NamedPorts::new(),
        }
    }

    /// Of a pod. `namespace`: None if it is not known. `named`: see [`named_by`].
    pub fn of(pod: &Pod, namespace: Option<&Namespace>, named: &BTreeSet<Arc<str>>) -> Identity {
        let mut identity = Identity::new(&pod.name.namespace, &Labels::new());
        identity.labels = lasting(&pod.labels, named);
        identity.namespace_labels.extend(namespace.iter().flat_map(|one| one.labels.clone()));
        identity.ports.clone_from(&pod.ports);
        identity
    }

    /// Whether a selector matches pods of this identity.
    pub(crate) fn is_one_of(&self, pods: &Pods) -> bool {
        self.is_in(&pods.namespaces) && pods.labels.matches(&self.labels)
    }

    /// Whether pods of this identity are in one of the namespaces.
    pub(crate) fn is_in(&self, namespaces: &Namespaces) -> bool {
        match namespaces {
            Namespaces::Any => true,
            Namespaces::Named(name) => *name == self.namespace,
            Namespaces::Selected(selector) => selector.matches(&self.namespace_labels),
        }
    }
}

fn lasting(labels: &Labels, named: &BTreeSet<Arc<str>>) -> Labels {
    let known = labels.iter().filter(|(key, _)| !IGNORED.contains(&&***key) || named.contains(*key));
    known.map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// Labels by which these policies tell peers apart, though they usually do not count.
pub fn named_by<'a>(policies: impl Iterator<Item = &'a Policy>) -> BTreeSet<Arc<str>> {
    let rules = policies.flat_map(|policy| policy.rules.egress.iter().chain(&policy.rules.ingress));
    let keys = rules.flat_map(|rule| &rule.peers).filter_map(|peer| match peer {
        Peer::Pods(pods) => Some(pods.labels.keys()),
        _ => None,
    });
    keys.flatten().filter(|key| IGNORED.contains(&&***key)).cloned().collect()
}

/// Numbers of identities. A number is never reused: tables may still contain it.
#[derive(Debug)]
pub struct Identities {
    numbers: BTreeMap<Identity, u32>,
    next: u32,
}

impl Default for Identities {
    fn default() -> Identities {
        Identities::after(0)
    }
}

impl Identities {
    /// Continues after a process that has used numbers up to this one.
    pub fn after(last: u32) -> Identities {
        Identities { numbers: BTreeMap::new(), next: last.saturating_add(1).max(FIRST) }
    }

    /// Assigns the next number to an identity that has none.
    pub fn number(&mut self, of: Identity) -> u32 {
        *self.numbers.entry(of).or_insert_with(|| {
            let number = self.next;
            // After 2^32 sets of labels the agent must be restarted with new tables.
            self.next = self.next.checked_add(1).expect("identity numbers are not exhausted");
            number
        })
    }

    /// The identity's number. None: it has none yet, or was forgotten.
    pub fn get(&self, of: &Identity) -> Option<u32> {
        self.numbers.get(of).copied()
    }

    /// The identity with this number. None: none has it, or it is one of the reserved numbers below [`FIRST`].
    pub fn name(&self, number: u32) -> Option<&Identity> {
        self.iter().find(|(_, its)| *its == number).map(|(identity, _)| identity)
    }

    /// All identities with their numbers, ordered by namespace and labels.
    pub fn iter(&self) -> impl Iterator<Item = (&Identity, u32)> {
        self.numbers.iter().map(|(identity, number)| (identity, *number))
    }

    /// Those of one namespace.
    pub(crate) fn of_namespace(&self, name: &Arc<str>) -> impl Iterator<Item = (&Identity, u32)> {
        let first = Identity {
            namespace: Arc::clone(name),
            labels: Labels::new(),
            namespace_labels: Labels::new(),
            ports: NamedPorts::new(),
        };
        let (name, from_first) = (Arc::clone(name), self.numbers.range(first..));
        let its = from_first.take_while(move |(identity, _)| identity.namespace == name);
        its.map(|(identity, number)| (identity, *number))
    }

    /// How many identities have a number.
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Forgets identities that no address has any more.
    pub fn keep(&mut self, used: &BTreeSet<u32>) {
        self.numbers.retain(|_, number| used.contains(number));
    }
}
