//! What the metrics are made of.

use crate::{Backend, Captures, Count, Counters, Protocol, Status};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything that the metrics show.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// Of the agent itself.
    pub status: Status,
    /// How many Services are known, and how many parts of them could not be programmed.
    pub services: usize,
    /// Parts of Services that could not be programmed.
    pub service_problems: usize,
    /// In the order of names.
    pub ports: Vec<PortFigures>,
    /// Captured pods.
    pub captures: Captures,
    /// Those that have been used since the agent began to count for them.
    pub backends: Vec<Backend>,
    /// Policies and bypasses.
    #[serde(default)]
    pub policing: PolicingFigures,
    /// What was counted without a proxy; None: nothing is (`--watch`).
    #[serde(default)]
    pub flows: Option<Flows>,
    /// None: nothing is spliced here.
    #[serde(default)]
    pub splice: Option<Splice>,
}

/// Of one port of a Service, of one family and traffic policy.
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
    /// As in `Port`.
    pub policy: String,
    /// How often it was used.
    pub counters: Counters,
}

/// Policies and bypasses in figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PolicingFigures {
    /// How many policies are known.
    pub policies: usize,
    /// Pods whose connections are judged as their policies want it.
    pub judged: usize,
    /// Pods that policies select and that are not.
    pub unjudged: usize,
    /// Whether policies as a whole have a trouble.
    pub trouble: bool,
    /// Services that are led around proxies, and those that ask for it in vain.
    pub bypassed: usize,
    /// Services that ask for a bypass in vain.
    pub bypass_refused: usize,
    /// None: this node is not armed. Else how many network namespaces are admitted, beside the node's own.
    #[serde(default)]
    pub admitted: Option<usize>,
}

/// TCP connections, counted at the ends that a policy, a capture or a Service concerns.
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
    /// Who has connected.
    pub client: Workload,
    /// Who was connected to.
    pub server: Workload,
    /// `client` or `server`: at whose end it was counted.
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
    /// `client` or `server`: at whose end they were counted.
    pub side: String,
    /// Connections to the Service.
    pub counted: Counted,
}

/// Pods of one kind, `node`, `unknown`, or `other` where there are too many.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Workload {
    /// Namespace of the pods; empty where they are none.
    pub namespace: String,
    /// Name that the pods share.
    pub workload: String,
}

/// Figures of TCP connections.
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
    /// By kind: `refused`, `reset`, `timed-out`, `other`.
    pub failures: BTreeMap<String, u64>,
    /// Calls of connect(2) by the time they took: less than 2^i microseconds and not less than half of that.
    pub latencies: Vec<u64>,
    /// Sum of the round-trip times, in microseconds.
    pub rtt_us: u64,
    /// How many round-trip times were added up.
    pub rtts: u64,
}

/// What was spliced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Splice {
    /// Whether splicing is paused.
    pub paused: bool,
    /// Connections that were spliced.
    pub connections: u64,
    /// Messages that went from socket to socket.
    pub messages: u64,
    /// Bytes of these messages.
    pub bytes: u64,
    /// How often each thing has happened, by reason code.
    pub reasons: Vec<Count>,
}
