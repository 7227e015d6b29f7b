//! Answers.

use crate::{Metrics, Policies, Protocol};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;

/// What the agent says to a [`Question`](crate::Question) of the same name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// Who the agent is, and how full its tables are.
    Status(Status),
    /// Services with their ports.
    Services(Vec<Service>),
    /// Differences between the tables and what they are meant to say; none: all is well.
    Check(Check),
    /// What happens to a connection.
    Explanation(Explanation),
    /// Captured pods.
    Captures(Captures),
    /// Policies and the pods that they select here.
    Policies(Policies),
    /// Everything that the metrics show.
    Metrics(Box<Metrics>),
    /// The agent ends.
    Stopping,
}

/// Who the agent is, where its wishes come from, and how full its tables are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The agent's release.
    pub version: String,
    /// Its process id.
    pub pid: u32,
    /// Name of this node.
    pub node: String,
    /// Zone of this node, if it is known.
    pub zone: Option<String>,
    /// Processes in it, and below, are balanced.
    pub cgroup: PathBuf,
    /// Where the Services come from.
    pub source: Source,
    /// Whether connections are being balanced already.
    pub attached: bool,
    /// Tables of the kernel.
    pub tables: Vec<Fill>,
    /// How often each thing has happened, by reason code.
    pub reasons: Vec<Count>,
    /// How long it takes until the tables say what is wanted.
    pub reconcile: Reconcile,
    /// Addresses at which NodePorts answer.
    pub node_addresses: Vec<String>,
}

/// Where the Services come from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Source {
    /// A directory or a server.
    pub name: String,
    /// Everything that can be read has been read.
    pub listed: bool,
    /// What could not be read; what was known of it before stays as it is.
    pub troubles: Vec<Trouble>,
}

/// Something that could not be read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trouble {
    /// A file, an object, a server.
    pub place: String,
    /// What is wrong there.
    pub what: String,
    /// There may be Services or endpoints that are not known because of it: nothing of an earlier agent's is removed.
    pub hides_objects: bool,
}

/// How full a table is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fill {
    /// Name of the table.
    pub table: String,
    /// Entries that are taken.
    pub used: u32,
    /// Entries that it has room for.
    pub size: u32,
}

/// How often one thing has happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Count {
    /// Reason code.
    pub reason: String,
    /// How often.
    pub count: u64,
}

/// How long it takes until the tables say what is wanted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reconcile {
    /// How often the tables were brought up to date.
    pub runs: u64,
    /// How many of these runs failed.
    pub failures: u64,
    /// Of the last run that changed something, in microseconds.
    pub last_us: u64,
    /// Of the longest run, in microseconds.
    pub longest_us: u64,
    /// Connected UDP sockets whose backend had gone: those that were connected to another one, and those that were ended since
    /// there was none.
    #[serde(default)]
    pub moved_sockets: u64,
    /// Those that were ended.
    pub reclaimed_sockets: u64,
}

/// A Service, as it is programmed here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
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

/// One port of a Service, of one family.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Port {
    /// Name of the port; empty: it has none.
    pub name: String,
    /// Protocol of the port.
    pub protocol: Protocol,
    /// 4 or 6.
    pub family: u8,
    /// Which endpoints serve at these frontends: `Cluster`, or those of this node, `Local`.
    pub policy: String,
    /// Addresses at which it answers.
    pub frontends: Vec<Frontend>,
    /// `random`, `weighted` or `least-connections`.
    pub selection: String,
    /// 0: none.
    pub affinity_seconds: u32,
    /// Endpoints that serve here.
    pub backend_count: usize,
    /// How often it was used.
    pub counters: Counters,
    /// Only where one Service is asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<Backend>,
    /// Endpoints that are not used on this node, and why. Only where one Service is asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unused: Vec<Unused>,
}

/// An address at which a port answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Frontend {
    /// `10.96.0.1:443`, or `NodePort 30080`.
    pub address: String,
    /// How many backends it leads to; 0: refused at once.
    pub backends: usize,
}

/// How often a port was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// Connections and flows that were given a backend.
    pub picks: u64,
    /// Picks that repeated an earlier one of the same client.
    pub affinity_hits: u64,
    /// Connections that were refused since there is no endpoint.
    pub refused: u64,
}

/// An endpoint that serves here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Backend {
    /// Address and port of the endpoint.
    pub address: SocketAddr,
    /// Its part of the choices, beside those of the others.
    pub weight: u32,
    /// Sockets connected to it now, through whatever Service.
    pub active: u64,
    /// Connections and flows that were given to it, through whatever Service.
    pub picks: u64,
}

/// An endpoint that does not serve here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unused {
    /// Address and port of the endpoint.
    pub address: String,
    /// Why it does not.
    pub why: String,
}

/// What a comparison of the tables with what they should say has found.
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
    /// Where the tables say something else.
    pub differences: Vec<String>,
    /// What could not be read.
    pub troubles: Vec<Trouble>,
    /// Services and captured pods of which something could not be programmed.
    pub problems: Vec<String>,
}

impl Check {
    /// Whether nothing is wrong.
    pub fn is_well(&self) -> bool {
        self.differences.is_empty() && self.troubles.is_empty() && self.problems.is_empty()
    }
}

/// The way of a connection, rule by rule; the last one decides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// Rules in the order in which they are asked.
    pub steps: Vec<Step>,
    /// What becomes of the connection.
    pub verdict: Verdict,
    /// `default/web:http TCP`
    pub service: Option<String>,
    /// Where it may go.
    pub backends: Vec<Backend>,
}

/// A rule, and what it says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The rule's name.
    pub rule: String,
    /// What it says of this connection.
    pub outcome: String,
}

/// What becomes of a connection.
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
    /// Tables of captures.
    pub tables: Vec<Fill>,
    /// Captured namespaces that have ended.
    pub ended: u64,
}

/// A file of kind Capture, and what became of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Capture {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the capture.
    pub name: String,
    /// As the file has it; empty where no file is known.
    pub netns: String,
    /// The network namespace's cookie, where it is there.
    pub cookie: Option<u64>,
    /// Whether its connections go through the proxy, as this file wants.
    pub captured: bool,
    /// Port of the proxy for what the pod sends.
    pub outbound_port: u16,
    /// Port of the proxy for what the pod receives.
    pub inbound_port: u16,
    /// Sockets of the proxy that listen at these ports.
    pub outbound_listeners: usize,
    /// Sockets of the proxy that listen at the inbound port.
    pub inbound_listeners: usize,
    /// What could not be done.
    pub troubles: Vec<String>,
}
