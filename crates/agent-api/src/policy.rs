//! With whom pods may talk.

use crate::Count;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    pub namespace: String,
    pub name: String,
    /// Labels that a pod has to have; empty: all pods of the namespace.
    pub select: BTreeMap<String, String>,
    /// `allow` or `deny`: what becomes of what no rule fits; None: the policy says nothing of this direction.
    pub egress: Option<String>,
    pub ingress: Option<String>,
    /// As they are numbered where rules are named: "egress 1: allow TCP 5432 to pods app=db".
    pub rules: Vec<String>,
    pub dry_run: bool,
    /// `refuse` or `drop`.
    pub on_deny: String,
    pub require_proxy: bool,
    /// Pods of this node that it selects.
    pub pods: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JudgedPod {
    pub namespace: String,
    pub name: String,
    /// Whether its connections are judged as its policies want it.
    pub judged: bool,
    pub policies: Vec<String>,
    pub troubles: Vec<String>,
}
