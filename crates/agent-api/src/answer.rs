//! Answers.

use crate::{Metrics, Policies, Protocol};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    Status(Status),
    Services(Vec<Service>),
    /// Differences between the tables and what they are meant to say; none: all is well.
    Check(Check),
    Explanation(Explanation),
    Captures(Captures),
    Policies(Policies),
    Metrics(Box<Metrics>),
    Stopping,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    pub version: String,
    pub pid: u32,
    pub node: String,
    pub zone: Option<String>,
    /// Processes in it, and below, are balanced.
    pub cgroup: PathBuf,
    pub source: Source,
    /// Whether connections are being balanced already.
    pub attached: bool,
    pub tables: Vec<Fill>,
    /// How often each thing has happened, by reason code.
    pub reasons: Vec<Count>,
    pub reconcile: Reconcile,
    /// Addresses at which NodePorts answer.
    pub node_addresses: Vec<String>,
}

/// Where the Services come from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Source {
    pub name: String,
    /// Everything that can be read has been read.
    pub listed: bool,
    /// What could not be read; what was known of it before stays as it is.
    pub troubles: Vec<Trouble>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trouble {
    /// A file, an object, a server.
    pub place: String,
    pub what: String,
    /// There may be Services or endpoints that are not known because of it: nothing of an earlier agent's is removed.
    pub hides_objects: bool,
}

/// How full a table is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fill {
    pub table: String,
    pub used: u32,
    pub size: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Count {
    pub reason: String,
    pub count: u64,
}

/// How long it takes until the tables say what is wanted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reconcile {
    pub runs: u64,
    pub failures: u64,
    /// Of the last run that changed something, in microseconds.
    pub last_us: u64,
    pub longest_us: u64,
    /// Connected UDP sockets whose backend had gone: those that were connected to another one, and those that were ended since
    /// there was none.
    #[serde(default)]
    pub moved_sockets: u64,
    pub reclaimed_sockets: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Service {
    pub namespace: String,
    pub name: String,
    /// One for each port and family that has an address.
    pub ports: Vec<Port>,
    /// Whether its connections are led around proxies; None: it does not ask for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bypass: Option<Bypass>,
    /// What could not be programmed, and why.
    pub problems: Vec<String>,
    /// What is left to others, and why.
    pub left: Vec<String>,
}

/// As `sidestep.dev/bypass-proxy` asks for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bypass {
    /// Whether servers' proxies are led around too, or only clients'.
    pub inbound: bool,
    /// Why it is not done.
    pub refused: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Port {
    pub name: String,
    pub protocol: Protocol,
    /// 4 or 6.
    pub family: u8,
    /// Which endpoints serve at these frontends: `Cluster`, or those of this node, `Local`.
    pub policy: String,
    pub frontends: Vec<Frontend>,
    /// `random`, `weighted` or `least-connections`.
    pub selection: String,
    /// 0: none.
    pub affinity_seconds: u32,
    pub backend_count: usize,
    pub counters: Counters,
    /// Only where one Service is asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<Backend>,
    /// Endpoints that are not used on this node, and why. Only where one Service is asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unused: Vec<Unused>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Frontend {
    /// `10.96.0.1:443`, or `NodePort 30080`.
    pub address: String,
    /// How many backends it leads to; 0: refused at once.
    pub backends: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// Connections and flows that were given a backend.
    pub picks: u64,
    /// Picks that repeated an earlier one of the same client.
    pub affinity_hits: u64,
    /// Connections that were refused since there is no endpoint.
    pub refused: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Backend {
    pub address: SocketAddr,
    pub weight: u32,
    /// Sockets connected to it now, through whatever Service.
    pub active: u64,
    /// Connections and flows that were given to it, through whatever Service.
    pub picks: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unused {
    pub address: String,
    pub why: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Frontends that were compared.
    pub frontends: usize,
    /// Captured namespaces that were compared.
    #[serde(default)]
    pub captures: usize,
    /// Namespaces of judged pods that were compared.
    #[serde(default)]
    pub judged: usize,
    /// None: this node is not armed. Else how many network namespaces are admitted, beside the node's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admitted: Option<usize>,
    /// On an armed node: network namespaces that are not admitted, by their files. They may talk with nobody.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub barred: Vec<String>,
    pub differences: Vec<String>,
    pub troubles: Vec<Trouble>,
    /// Services and captured pods of which something could not be programmed.
    pub problems: Vec<String>,
}

impl Check {
    pub fn is_well(&self) -> bool {
        self.differences.is_empty() && self.troubles.is_empty() && self.problems.is_empty()
    }
}

/// The way of a connection, rule by rule; the last one decides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    pub steps: Vec<Step>,
    pub verdict: Verdict,
    /// `default/web:http TCP`
    pub service: Option<String>,
    /// Where it may go.
    pub backends: Vec<Backend>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub rule: String,
    pub outcome: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Goes to one of the backends.
    Translated,
    /// ECONNREFUSED at once.
    Refused,
    /// Is the kernel's, as if Sidestep were not there.
    Untouched,
    /// Goes to the pod's proxy, as what the pod sends.
    CapturedOutbound,
    /// Goes to the pod's proxy, as what the pod receives.
    CapturedInbound,
    /// Goes to the pod's proxy, as a question to a name server.
    CapturedDns,
    /// Policies of the pod that calls forbid it.
    DeniedOut,
    /// Policies of the pod that is called forbid it.
    DeniedIn,
}

/// Pods whose connections go through their proxy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Captures {
    /// In the order of names.
    pub captures: Vec<Capture>,
    /// How often each thing has happened in all captured pods, by reason code.
    pub reasons: Vec<Count>,
    pub tables: Vec<Fill>,
    /// Captured namespaces that have ended.
    pub ended: u64,
}

/// A file of kind Capture, and what became of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Capture {
    pub namespace: String,
    pub name: String,
    /// As the file has it; empty where no file is known.
    pub netns: String,
    /// The network namespace's cookie, where it is there.
    pub cookie: Option<u64>,
    /// Whether its connections go through the proxy, as this file wants.
    pub captured: bool,
    pub outbound_port: u16,
    pub inbound_port: u16,
    /// Sockets of the proxy that listen at these ports.
    pub outbound_listeners: usize,
    pub inbound_listeners: usize,
    pub troubles: Vec<String>,
}
