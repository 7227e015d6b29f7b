//! What the metrics are made of.

use crate::{Backend, Captures, Count, Counters, Protocol, Status};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    pub status: Status,
    /// How many Services are known, and how many parts of them could not be programmed.
    pub services: usize,
    pub service_problems: usize,
    /// In the order of names.
    pub ports: Vec<PortFigures>,
    pub captures: Captures,
    /// Those that have been used since the agent began to count for them.
    pub backends: Vec<Backend>,
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
    pub namespace: String,
    pub service: String,
    pub port: String,
    pub protocol: Protocol,
    /// 4 or 6.
    pub family: u8,
    /// As in `Port`.
    pub policy: String,
    pub counters: Counters,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PolicingFigures {
    pub policies: usize,
    /// Pods whose connections are judged as their policies want it.
    pub judged: usize,
    /// Pods that policies select and that are not.
    pub unjudged: usize,
    /// Whether policies as a whole have a trouble.
    pub trouble: bool,
    /// Services that are led around proxies, and those that ask for it in vain.
    pub bypassed: usize,
    pub bypass_refused: usize,
    /// None: this node is not armed. Else how many network namespaces are admitted, beside the node's own.
    #[serde(default)]
    pub admitted: Option<usize>,
}

/// TCP connections, counted at the ends that a policy, a capture or a Service concerns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flows {
    pub pairs: Vec<Pair>,
    pub services: Vec<ServiceFlows>,
}

/// Two workloads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    pub client: Workload,
    pub server: Workload,
    /// `client` or `server`: at whose end it was counted.
    pub side: String,
    pub counted: Counted,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceFlows {
    pub namespace: String,
    pub service: String,
    pub side: String,
    pub counted: Counted,
}

/// Pods of one kind, `node`, `unknown`, or `other` where there are too many.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Workload {
    pub namespace: String,
    pub workload: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    pub attempts: u64,
    pub connections: u64,
    pub closed: u64,
    pub sent: u64,
    pub received: u64,
    /// By kind: `refused`, `reset`, `timed-out`, `other`.
    pub failures: BTreeMap<String, u64>,
    /// Calls of connect(2) by the time they took: less than 2^i microseconds and not less than half of that.
    pub latencies: Vec<u64>,
    pub rtt_us: u64,
    pub rtts: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Splice {
    pub paused: bool,
    pub connections: u64,
    pub messages: u64,
    pub bytes: u64,
    pub reasons: Vec<Count>,
}
