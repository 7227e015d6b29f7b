//! What the agent and the plugin that gives containers the library tell each other, by files of the node.

use serde::{Deserialize, Serialize};

/// Label of a namespace or a pod whose containers are to use rings; annotation of a pod that opts out.
pub const RINGS: &str = "sidestep.dev/rings";
/// The label's only value that enrols.
pub const RINGS_ENABLED: &str = "enabled";
/// Most bytes of the file with the names of enrolled namespaces: a name a line.
pub const LARGEST_NAMESPACES_FILE: u64 = 1 << 20;

/// A line of the plugin's file of events: what became of a container of an enrolled pod. Fields that are not known are passed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerEvent {
    /// RFC 3339.
    pub time: String,
    /// The outcome: `left-out`, `no-effect` or `unknown`.
    pub event: String,
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// The kubelet's UID of the pod.
    pub pod_uid: String,
    /// Name of the container.
    pub container: String,
    /// Stable name of the reason.
    pub reason: String,
    /// The reason, as a sentence.
    pub message: String,
}
