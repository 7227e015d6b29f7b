//! Policies.

use crate::Count;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Policies, and the pods of this node that they select.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Policies {
    /// The policies, ordered by name.
    pub policies: Vec<Policy>,
    /// Pods of this node that a policy selects, ordered by name.
    pub pods: Vec<EnforcedPod>,
    /// Counters by reason code.
    pub reasons: Vec<Count>,
    /// A problem that concerns all policies.
    pub trouble: Option<String>,
    /// None: this node is not armed. Else how many network namespaces are admitted, beside the node's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admitted: Option<usize>,
}

/// A policy, as it was read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// Namespace of the policy.
    pub namespace: String,
    /// Name of the policy.
    pub name: String,
    /// Labels that a pod has to have; empty: all pods of the namespace.
    pub select: BTreeMap<String, String>,
    /// Requirements of a NetworkPolicy's pod selector, such as `tier in (a,b)`.
    #[serde(default)]
    pub expressions: Vec<String>,
    /// Default for outgoing connections, `allow` or `deny`; None: the policy says nothing about this direction.
    pub egress: Option<String>,
    /// The same for incoming connections.
    pub ingress: Option<String>,
    /// The rules, numbered: "egress 1: allow TCP 5432 to pods app=db".
    pub rules: Vec<String>,
    /// Dry run: what would be denied is counted, but allowed.
    pub dry_run: bool,
    /// `refuse` or `drop`.
    pub on_deny: String,
    /// Whether the pods' connections must go through their proxy.
    pub require_proxy: bool,
    /// Number of pods of this node that it selects.
    pub pods: Vec<String>,
}

/// A pod that a policy selects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EnforcedPod {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// Whether its policies are in force.
    pub enforced: bool,
    /// Policies that select it.
    pub policies: Vec<String>,
    /// Why its policies are not in force.
    pub troubles: Vec<String>,
}
