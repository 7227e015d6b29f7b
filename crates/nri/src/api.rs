//! The messages of NRI v1alpha1, as far as the plugin needs them.
//!
//! Names and numbers of fields are those of `pkg/api/api.proto` of NRI (github.com/containerd/nri, Apache License 2.0). A field
//! that is not here is skipped when a message is read.

use std::collections::HashMap;

/// The service that the plugin offers.
pub const PLUGIN_SERVICE: &str = "nri.pkg.api.v1alpha1.Plugin";
/// The service that the runtime offers.
pub const RUNTIME_SERVICE: &str = "nri.pkg.api.v1alpha1.Runtime";

/// Numbers of events.
pub const CREATE_CONTAINER: i32 = 4;
/// See [`CREATE_CONTAINER`].
pub const START_CONTAINER: i32 = 6;

/// An event's bit of [`ConfigureResponse::events`].
pub const fn bit(event: i32) -> i32 {
    1 << (event - 1)
}

macro_rules! message {
    ($(#[$doc:meta])* $name:ident { $($(#[$field:meta])* $member:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, prost::Message)]
        #[allow(missing_docs)] // As in api.proto.
        pub struct $name { $($(#[$field])* pub $member: $type,)* }
    };
}

message! {
    /// The plugin introduces itself.
    RegisterPluginRequest {
        #[prost(string, tag = "1")]
        plugin_name: String,
        #[prost(string, tag = "2")]
        plugin_idx: String,
    }
}

message! {
    /// An answer without content.
    Empty {}
}

message! {
    /// The runtime introduces itself.
    ConfigureRequest {
        #[prost(string, tag = "2")]
        runtime_name: String,
        #[prost(string, tag = "3")]
        runtime_version: String,
    }
}

message! {
    /// The events that the plugin wants to have.
    ConfigureResponse {
        #[prost(int32, tag = "2")]
        events: i32,
    }
}

message! {
    /// Pods and containers that the runtime has, or some of them.
    SynchronizeRequest {
        #[prost(message, repeated, tag = "1")]
        pods: Vec<PodSandbox>,
        #[prost(message, repeated, tag = "2")]
        containers: Vec<Container>,
        /// Whether there are more to come.
        #[prost(bool, tag = "3")]
        more: bool,
    }
}

message! {
    /// A plugin that takes its pods in several messages repeats `more`.
    SynchronizeResponse {
        #[prost(bool, tag = "2")]
        more: bool,
    }
}

message! {
    /// The requests CreateContainer and StartContainer.
    ContainerRequest {
        #[prost(message, optional, tag = "1")]
        pod: Option<PodSandbox>,
        #[prost(message, optional, tag = "2")]
        container: Option<Container>,
    }
}

message! {
    /// StateChange, as which runtimes with NRI before 0.12 send StartContainer.
    StateChangeEvent {
        #[prost(int32, tag = "1")]
        event: i32,
        #[prost(message, optional, tag = "2")]
        pod: Option<PodSandbox>,
        #[prost(message, optional, tag = "3")]
        container: Option<Container>,
    }
}

message! {
    /// What is to be changed of a container before it is created.
    CreateContainerResponse {
        #[prost(message, optional, tag = "1")]
        adjust: Option<ContainerAdjustment>,
    }
}

message! {
    /// A pod.
    PodSandbox {
        #[prost(string, tag = "1")]
        id: String,
        #[prost(string, tag = "2")]
        name: String,
        #[prost(string, tag = "3")]
        uid: String,
        #[prost(string, tag = "4")]
        namespace: String,
        #[prost(map = "string, string", tag = "5")]
        labels: HashMap<String, String>,
        #[prost(map = "string, string", tag = "6")]
        annotations: HashMap<String, String>,
        #[prost(message, optional, tag = "8")]
        linux: Option<LinuxPodSandbox>,
    }
}

message! {
    /// What a pod has of its own.
    LinuxPodSandbox {
        #[prost(message, repeated, tag = "5")]
        namespaces: Vec<LinuxNamespace>,
    }
}

message! {
    /// A namespace in the sense of namespaces(7).
    LinuxNamespace {
        #[prost(string, tag = "1")]
        r#type: String,
        #[prost(string, tag = "2")]
        path: String,
    }
}

message! {
    /// A container.
    Container {
        #[prost(string, tag = "1")]
        id: String,
        #[prost(string, tag = "2")]
        pod_sandbox_id: String,
        #[prost(string, tag = "3")]
        name: String,
        #[prost(string, repeated, tag = "7")]
        args: Vec<String>,
        #[prost(string, repeated, tag = "8")]
        env: Vec<String>,
        #[prost(message, repeated, tag = "9")]
        mounts: Vec<Mount>,
        #[prost(uint32, tag = "12")]
        pid: u32,
    }
}

message! {
    /// A mount of a container.
    Mount {
        #[prost(string, tag = "1")]
        destination: String,
        #[prost(string, tag = "2")]
        r#type: String,
        #[prost(string, tag = "3")]
        source: String,
        #[prost(string, repeated, tag = "4")]
        options: Vec<String>,
    }
}

message! {
    /// What is added to a container.
    ContainerAdjustment {
        #[prost(message, repeated, tag = "3")]
        mounts: Vec<Mount>,
        #[prost(message, repeated, tag = "4")]
        env: Vec<KeyValue>,
    }
}

message! {
    /// A variable. One whose key begins with `-` is taken away, also from what another plugin has added.
    KeyValue {
        #[prost(string, tag = "1")]
        key: String,
        #[prost(string, tag = "2")]
        value: String,
    }
}
