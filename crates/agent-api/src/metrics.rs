//! The data of the metrics.

use crate::{Backend, Captures, Count, Counters, Protocol, Status};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The data of all metrics.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// The agent's state.
    pub status: Status,
    /// Number of known Services.
    pub services: usize,
    /// Number of parts of Services that could not be programmed.
    pub service_problems: usize,
    /// The ports, ordered by name.
    pub ports: Vec<PortFigures>,
    /// Captured pods.
    pub captures: Captures,
    /// Backends that have been used since the agent began.
    pub backends: Vec<Backend>,
    /// Policies and bypasses.
    #[serde(default)]
    pub policing: PolicingFigures,
    /// Connections that were counted without a proxy; None: they are not counted (`--watch`).
    #[serde(default)]
    pub flows: Option<Flows>,
    /// None: splicing is not installed.
    #[serde(default)]
    pub splice: Option<Splice>,
}

/// The counters of one port of a Service, in one family and with one traffic policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PortFigures {
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub service: String,
    /// Name of the port; empty: it has none.
    pub port: String,
    /// Protocol of the port.
    pub protocol: Protocol,
    /// 4 or 6.
    pub family: u8,
    /// The traffic policy, as in `Port`.
    pub policy: String,
    /// Counters.
    pub counters: Counters,
}

/// Policies and bypasses in figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PolicingFigures {
    /// How many policies are known.
    pub policies: usize,
    /// Number of pods whose policies are in force.
    pub enforced: usize,
    /// Number of pods that policies select, but whose policies are not in force.
    pub unenforced: usize,
    /// Whether there is a problem that concerns all policies.
    pub trouble: bool,
    /// Number of Services with a bypass.
    pub bypassed: usize,
    /// Number of Services whose bypass is refused.
    pub bypass_refused: usize,
    /// None: this node is not armed. Else how many network namespaces are admitted, beside the node's own.
    #[serde(default)]
    pub admitted: Option<usize>,
}

/// TCP connections of pods, counted where a policy, capture or a Service concerns them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flows {
    /// By client and server.
    pub pairs: Vec<Pair>,
    /// By Service.
    pub services: Vec<ServiceFlows>,
}

/// Two workloads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// The end that connected.
    pub client: Workload,
    /// The other end.
    pub server: Workload,
    /// `client` or `server`: the end at which it was counted.
    pub side: String,
    /// Connections of the pair.
    pub counted: Counted,
}

/// Connections to one Service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceFlows {
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub service: String,
    /// `client` or `server`: the end at which they were counted.
    pub side: String,
    /// Connections to the Service.
    pub counted: Counted,
}

/// Pods of one kind, or `node`, or `unknown`, or `other` for all beyond the limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Workload {
    /// Namespace of the pods; empty for the other three.
    pub namespace: String,
    /// The pods' common name.
    pub workload: String,
}

/// Counters of TCP connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    /// Calls of connect(2).
    pub attempts: u64,
    /// Connections that were established.
    pub connections: u64,
    /// Connections that have ended.
    pub closed: u64,
    /// Bytes sent.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
    /// Failures by kind: `refused`, `reset`, `timed-out`, `other`.
    pub failures: BTreeMap<String, u64>,
    /// Calls of connect(2): element i counts those that took less than 2^i microseconds and at least half of that.
    pub latencies: Vec<u64>,
    /// Sum of sampled round-trip times, in microseconds.
    pub rtt_us: u64,
    /// Number of samples in the sum.
    pub rtts: u64,
}

/// The state and the counters of splicing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Splice {
    /// Whether splicing is paused.
    pub paused: bool,
    /// Number of connections that were spliced.
    pub connections: u64,
    /// Messages that were redirected from socket to socket.
    pub messages: u64,
    /// Bytes of these messages.
    pub bytes: u64,
    /// Counters by reason code.
    pub reasons: Vec<Count>,
}
