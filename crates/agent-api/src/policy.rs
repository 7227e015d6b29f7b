//! With whom pods may talk.

use crate::Count;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Policies, and the pods of this node that they select.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Policies {
    /// In the order of names.
    pub policies: Vec<Policy>,
    /// Pods of this node that a policy selects, in the order of names.
    pub pods: Vec<JudgedPod>,
    /// How often each thing has happened, by reason code.
    pub reasons: Vec<Count>,
    /// What is wrong with policies as a whole.
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
    /// `allow` or `deny`: what becomes of what no rule fits; None: the policy says nothing of this direction.
    pub egress: Option<String>,
    /// The same for connections to the pods.
    pub ingress: Option<String>,
    /// As they are numbered where rules are named: "egress 1: allow TCP 5432 to pods app=db".
    pub rules: Vec<String>,
    /// What would be denied is counted, and allowed.
    pub dry_run: bool,
    /// `refuse` or `drop`.
    pub on_deny: String,
    /// Only connections through the pod's proxy are allowed.
    pub require_proxy: bool,
    /// Pods of this node that it selects.
    pub pods: Vec<String>,
}

/// A pod that a policy selects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JudgedPod {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// Whether its connections are judged as its policies want it.
    pub judged: bool,
    /// Policies that select it.
    pub policies: Vec<String>,
    /// Why its connections are not judged.
    pub troubles: Vec<String>,
}
