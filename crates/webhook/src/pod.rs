//! What of a pod's object counts. Fields that are not here are passed over, and stay as they are.

use k8s_openapi::api::core::v1::{Affinity, Toleration};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;

/// A pod.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Pod {
    pub metadata: Metadata,
    pub spec: Spec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    pub name: String,
    pub generate_name: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Spec {
    pub init_containers: Vec<Container>,
    pub containers: Vec<Container>,
    pub ephemeral_containers: Vec<Container>,
    pub volumes: Vec<Volume>,
    pub host_network: bool,
    pub host_users: Option<bool>,
    pub os: Option<Os>,
    pub node_name: Option<String>,
    pub node_selector: BTreeMap<String, String>,
    pub affinity: Option<Affinity>,
    pub tolerations: Vec<Toleration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Os {
    pub name: String,
}

/// A container of any kind.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Container {
    pub name: String,
    pub env: Vec<Variable>,
    pub env_from: Vec<Source>,
    pub volume_mounts: Vec<Mount>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Variable {
    pub name: String,
    pub value: String,
    pub value_from: Option<IgnoredAny>,
}

/// Of many variables.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Source {
    /// The names of all of them begin so.
    pub prefix: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Mount {
    pub name: String,
    pub mount_path: String,
    pub read_only: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Volume {
    pub name: String,
    pub empty_dir: Option<IgnoredAny>,
    pub host_path: Option<HostPath>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct HostPath {
    pub path: String,
}

/// Of a pod that the kubelet has from a file: the object only mirrors it.
const MIRROR: &str = "kubernetes.io/config.mirror";
const SYSTEM: &str = "kubernetes.io/os";
const LINUX: &str = "linux";

impl Pod {
    /// Whether the object has no effect on the pod.
    pub fn is_mirror(&self) -> bool {
        self.metadata.annotations.contains_key(MIRROR)
    }

    /// Whether the pod is for nodes with another system than Linux.
    pub fn is_for_other_system(&self) -> bool {
        let named = [self.spec.os.as_ref().map(|os| &os.name), self.spec.node_selector.get(SYSTEM)];
        named.into_iter().flatten().any(|name| name != LINUX)
    }

    /// For the log: pods of controllers have no name yet.
    pub fn name(&self) -> &str {
        if self.metadata.name.is_empty() { &self.metadata.generate_name } else { &self.metadata.name }
    }
}

impl sidestep_injection::Pod for Pod {
    fn label(&self, name: &str) -> Option<&str> {
        self.metadata.labels.get(name).map(String::as_str)
    }

    fn annotation(&self, name: &str) -> Option<&str> {
        self.metadata.annotations.get(name).map(String::as_str)
    }

    fn has_own_network(&self) -> bool {
        !self.spec.host_network
    }
}
