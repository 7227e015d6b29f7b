//! Answers.

use crate::{Admitted, Metrics, Policies, Protocol};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;

/// The agent's answer to the [`Question`](crate::Question) of the same name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The agent's state, and how full its tables are.
    Status(Status),
    /// Services with their ports.
    Services(Vec<Service>),
    /// Differences between the tables and what they are meant to hold.
    Check(Check),
    /// What happens to a connection.
    Explanation(Explanation),
    /// Captured pods.
    Captures(Captures),
    /// Policies and the pods that they select here.
    Policies(Policies),
    /// The data of all metrics.
    Metrics(Box<Metrics>),
    /// The pod is admitted: what its rules and policies say is in force.
    Admitted(Admitted),
    /// Another request of the CNI plugin is done.
    Done,
    /// The agent ends.
    Stopping,
}

/// The agent's state, its sources, and how full its tables are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The agent's version.
    pub version: String,
    /// Its process id.
    pub pid: u32,
    /// Name of this node.
    pub node: String,
    /// Zone of this node, if it is known.
    pub zone: Option<String>,
    /// The cgroup whose processes, also those below it, are balanced.
    pub cgroup: PathBuf,
    /// Where the Services come from.
    pub source: Source,
    /// Whether connections are being balanced.
    pub attached: bool,
    /// How full the kernel's tables are.
    pub tables: Vec<Fill>,
    /// Counters by reason code.
    pub reasons: Vec<Count>,
    /// Times of bringing the tables up to date.
    pub reconcile: Reconcile,
    /// Addresses at which NodePorts answer.
    pub node_addresses: Vec<String>,
}

/// Where the Services come from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Source {
    /// A directory or a server.
    pub name: String,
    /// Whether everything that can be read has been read.
    pub listed: bool,
    /// What could not be read; its previous content stays in force.
    pub troubles: Vec<Trouble>,
}

/// Something that could not be read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trouble {
    /// A file, an object, a server.
    pub place: String,
    /// What is wrong there.
    pub what: String,
    /// It may hide Services or endpoints: nothing that an earlier agent has left is removed.
    pub hides_objects: bool,
}

/// How full a table is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fill {
    /// Name of the table.
    pub table: String,
    /// Entries in use.
    pub used: u32,
    /// Capacity in entries.
    pub size: u32,
}

/// A counter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Count {
    /// Reason code.
    pub reason: String,
    /// The count.
    pub count: u64,
}

/// Times of bringing the tables up to date.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reconcile {
    /// How often the tables were brought up to date.
    pub runs: u64,
    /// How many of these runs failed.
    pub failures: u64,
    /// Duration of the last run that changed something, in microseconds.
    pub last_us: u64,
    /// Duration of the longest run, in microseconds.
    pub longest_us: u64,
    /// Duration of all runs, in microseconds.
    #[serde(default)]
    pub total_us: u64,
    /// Element i counts the runs that took less than 2^i microseconds and at least half of that; the last one all longer ones.
    #[serde(default)]
    pub durations: Vec<u64>,
    /// Connected UDP sockets whose backend had gone and that were connected to another one.
    #[serde(default)]
    pub moved_sockets: u64,
    /// Those that were aborted, since there was no other backend.
    pub reclaimed_sockets: u64,
}

/// A Service, as it is programmed here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub name: String,
    /// One for each port and each family in which it has an address.
    pub ports: Vec<Port>,
    /// The bypass of proxies; None: the Service does not ask for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bypass: Option<Bypass>,
    /// What could not be programmed, and why.
    pub problems: Vec<String>,
    /// Unsupported parts, and why.
    pub left: Vec<String>,
}

/// The bypass that `sidestep.dev/bypass-proxy` asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bypass {
    /// Whether servers' proxies are bypassed too, or only clients'.
    pub inbound: bool,
    /// Why the bypass is refused.
    pub refused: Option<String>,
}

/// One port of a Service, of one family.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Port {
    /// Name of the port; empty: it has none.
    pub name: String,
    /// Protocol of the port.
    pub protocol: Protocol,
    /// 4 or 6.
    pub family: u8,
    /// The traffic policy of these frontends: `Cluster`, or `Local` for endpoints of this node only.
    pub policy: String,
    /// The addresses.
    pub frontends: Vec<Frontend>,
    /// `random`, `weighted` or `least-connections`.
    pub selection: String,
    /// Seconds of session affinity; 0: none.
    pub affinity_seconds: u32,
    /// Number of endpoints that serve here.
    pub backend_count: usize,
    /// Counters.
    pub counters: Counters,
    /// The endpoints; only in the answer for a single Service.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<Backend>,
    /// Endpoints that are not used on this node, and why; only in the answer for a single Service.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unused: Vec<Unused>,
}

/// An address of a port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Frontend {
    /// `10.96.0.1:443`, or `NodePort 30080`.
    pub address: String,
    /// Number of backends; 0: connections are refused.
    pub backends: usize,
}

/// Counters of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// Connections and flows that got a backend.
    pub picks: u64,
    /// Of these, how many got the client's previous backend.
    pub affinity_hits: u64,
    /// Connections that were refused because there was no endpoint.
    pub refused: u64,
}

/// An endpoint that serves here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Backend {
    /// Address and port of the endpoint.
    pub address: SocketAddr,
    /// Its weight relative to the others.
    pub weight: u32,
    /// Sockets connected to it now, through any Service.
    pub active: u64,
    /// Connections and flows that it got, through any Service.
    pub picks: u64,
}

/// An endpoint that does not serve here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unused {
    /// Address and port of the endpoint.
    pub address: String,
    /// Why it does not serve.
    pub why: String,
}

/// The result of comparing the tables with what they are meant to hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Frontends that were compared.
    pub frontends: usize,
    /// Captured namespaces that were compared.
    #[serde(default)]
    pub captures: usize,
    /// Compared namespaces of pods that have policies.
    #[serde(default)]
    pub enforced: usize,
    /// None: this node is not armed. Else how many network namespaces are admitted, beside the node's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admitted: Option<usize>,
    /// On an armed node: network namespaces that are not admitted, by their files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub barred: Vec<String>,
    /// Differences.
    pub differences: Vec<String>,
    /// What could not be read.
    pub troubles: Vec<Trouble>,
    /// Services and captured pods that could not be programmed completely.
    pub problems: Vec<String>,
}

impl Check {
    /// Whether everything is right.
    pub fn is_well(&self) -> bool {
        self.differences.is_empty() && self.troubles.is_empty() && self.problems.is_empty()
    }
}

/// What happens to a connection, rule by rule; the last one decides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The rules in the order in which they apply.
    pub steps: Vec<Step>,
    /// The outcome.
    pub verdict: Verdict,
    /// `default/web:http TCP`
    pub service: Option<String>,
    /// The possible backends.
    pub backends: Vec<Backend>,
}

/// A rule, and what it says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The rule's name.
    pub rule: String,
    /// What it says about this connection.
    pub outcome: String,
}

/// The outcome for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It goes to one of the backends.
    Translated,
    /// It is refused at once (ECONNREFUSED; a packet is answered by ICMP's "port unreachable").
    Refused,
    /// It is left to the kernel, as without Sidestep.
    Untouched,
    /// It goes to the pod's proxy, as an outbound connection.
    CapturedOutbound,
    /// It goes to the pod's proxy, as an inbound connection.
    CapturedInbound,
    /// It goes to the pod's proxy, as a DNS query.
    CapturedDns,
    /// Policies of the calling pod forbid it.
    DeniedOut,
    /// Policies of the called pod forbid it.
    DeniedIn,
    /// A packet is dropped: its source or the traffic policy excludes it.
    Dropped,
}

/// Pods whose connections go through their proxy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Captures {
    /// The pods, ordered by name.
    pub captures: Vec<Capture>,
    /// Counters of all captured pods, by reason code.
    pub reasons: Vec<Count>,
    /// How full the tables of capture are.
    pub tables: Vec<Fill>,
    /// Number of captured namespaces that have ended.
    pub ended: u64,
}

/// A document of kind Capture, and the state of its pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Capture {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the capture.
    pub name: String,
    /// The network namespace, as the document has it; empty if there is no document.
    pub netns: String,
    /// The network namespace's cookie, if the namespace exists.
    pub cookie: Option<u64>,
    /// Whether its connections go through the proxy, by this document.
    pub captured: bool,
    /// Port of the proxy for outbound connections.
    pub outbound_port: u16,
    /// Port of the proxy for inbound connections.
    pub inbound_port: u16,
    /// Sockets of the proxy that listen at the outbound port.
    pub outbound_listeners: usize,
    /// Sockets of the proxy that listen at the inbound port.
    pub inbound_listeners: usize,
    /// Problems.
    pub troubles: Vec<String>,
}
