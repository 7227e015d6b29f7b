//! Identities: a namespace and a set of labels. Policies cannot tell apart pods with the same identity, so tables grow with the
//! kinds of pods, not with their number.

use super::rules::{Labels, Pods, has_all};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// All that policies can know of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    /// Where the pod is: equal labels in two namespaces are two identities.
    pub namespace: Arc<str>,
    /// The pod's labels without those that differ from one rollout or pod to the next.
    pub labels: Labels,
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

impl Identity {
    /// `labels` are all labels of the pod; those that every rollout would change are left out.
    pub fn new(namespace: &str, labels: &Labels) -> Identity {
        let known = labels.iter().filter(|(key, _)| !IGNORED.contains(&&***key));
        Identity { namespace: namespace.into(), labels: known.map(|(k, v)| (k.clone(), v.clone())).collect() }
    }

    /// Whether a selector matches pods of this identity.
    pub(crate) fn is_one_of(&self, pods: &Pods) -> bool {
        pods.namespace.as_ref().is_none_or(|namespace| *namespace == self.namespace)
            && has_all(&self.labels, &pods.labels)
    }
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

    /// Forgets identities that no address has any more.
    pub fn keep(&mut self, used: &BTreeSet<u32>) {
        self.numbers.retain(|_, number| used.contains(number));
    }
}
