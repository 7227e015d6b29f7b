//! Requests of the CNI plugin: pods that the runtime starts and ends.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::path::PathBuf;

/// A request of the CNI plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub enum Admission {
    /// Capture this pod, and enforce its policies. The answer comes when both are in force.
    Admit(Applicant),
    /// The pod has ended. Succeeds also if the agent does not know it.
    Release(Attachment),
    /// Whether the pod is still captured, and under its policies.
    Verify(Attachment),
    /// Forget all pods of this network but these.
    Collect {
        /// Name of the network.
        network: String,
        /// The pods that still exist.
        valid: Vec<Attachment>,
    },
    /// Whether pods can be admitted.
    Ready,
}

/// A pod that is about to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applicant {
    /// Which attachment the request is for.
    pub attachment: Attachment,
    /// File of the pod's network namespace.
    pub netns: PathBuf,
    /// Namespace of the Pod object.
    pub namespace: String,
    /// Name of the Pod object.
    pub name: String,
    /// UID of the Pod object, if the runtime says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Addresses that earlier plugins of the chain have given to the pod.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    /// After so many milliseconds the agent answers that the pod is not admitted.
    pub within_ms: u64,
}

/// An interface of a container in a network: the key under which CNI plugins keep state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Attachment {
    /// Name of the network.
    pub network: String,
    /// The runtime's name of the container; of a pod it is that of its sandbox.
    pub container: String,
    /// Name of the interface in the container.
    pub interface: String,
}

/// How a pod was admitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admitted {
    /// Why nothing of the pod is captured; None: its connections go through its proxy.
    pub uncaptured: Option<String>,
}
