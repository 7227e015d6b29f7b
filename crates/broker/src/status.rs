//! What `sidestep status --json` prints. Field names are stable; new ones may be added.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Counts by name of the reason.
pub type Reasons = BTreeMap<String, u64>;

/// All that `sidestep status` shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Version of the protocol, which libraries and the broker must agree on.
    pub version: u32,
    /// Where the broker listens.
    pub address: String,
    /// Process id of the broker.
    pub pid: u32,
    /// The user that the broker runs as.
    pub uid: u32,
    /// `detach --all` is in force: new processes start detached.
    pub hold: bool,
    /// How many members, links and connections there are, whether or not they are listed. Absent: the broker lists all
    /// ([`Status::counted`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<Counts>,
    /// Members: at most [`Status::MOST`], as of everything that is listed.
    pub processes: Vec<Process>,
    /// Pairs of processes that share memory.
    pub links: Vec<Link>,
    /// Connections that have a slot.
    pub connections: Vec<Connection>,
    /// How many wait, whether or not `waiting` lists them.
    pub waiting_offers: u64,
    /// Connections that the kernel carries, and that their programs have offered.
    #[serde(default)]
    pub waiting: Vec<Waiting>,
    /// The stack, and those before it.
    #[serde(default)]
    pub stack: Stack,
    /// Sum over living and ended processes, without the stack.
    pub totals: Totals,
    /// The same for each pod by its UID, where pods are trust domains: at most [`Status::MOST_PODS`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pods: BTreeMap<String, Totals>,
    /// The same for all other pods together.
    #[serde(default)]
    pub other_pods: Totals,
    /// Sum over living and ended processes, and the stack.
    pub reasons: Reasons,
    /// What the broker itself has refused, apart from what processes report: offers by reason; users and versions that may not
    /// join; and as `broken-peer` processes that violated the protocol.
    #[serde(default)]
    pub refused: Reasons,
    /// Users whose connections to each other stay on the kernel, since they may not share memory: at most [`Strangers::MOST`] pairs.
    #[serde(default)]
    pub strangers: Vec<Strangers>,
}

impl Status {
    /// Users decide how many members, links and connections there are. The broker has memory for a list of this length.
    pub const MOST: usize = 1000;

    /// More than the pods of a node. Each is some series of metrics.
    pub const MOST_PODS: usize = 256;

    /// How many members, links and connections there are, also by a broker that lists all and does not count.
    pub fn counted(&self) -> Counts {
        self.counts.clone().unwrap_or_else(|| self.listed())
    }

    fn listed(&self) -> Counts {
        let mut directions = Directions::default();
        self.connections.iter().flat_map(|one| &one.directions).for_each(|one| directions.add(one.carrier));
        Counts {
            processes: self.processes.len() as u64,
            links: self.links.len() as u64,
            link_memory_bytes: self.links.iter().map(|link| link.memory_bytes).sum(),
            connections: self.connections.len() as u64,
            directions,
        }
    }
}

/// Everything that is there, also what a status does not list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Members.
    pub processes: u64,
    /// Pairs of processes that share memory.
    pub links: u64,
    /// Memory of all links that is really in use.
    pub link_memory_bytes: u64,
    /// Connections that have a slot.
    pub connections: u64,
    /// Directions of these connections, by what carries their bytes.
    pub directions: Directions,
}

/// A number for each carrier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Directions {
    /// By kernel TCP.
    pub kernel: u64,
    /// By shared memory.
    pub ring: u64,
    /// By the stack.
    pub stack: u64,
}

impl Directions {
    /// Counts one more.
    pub fn add(&mut self, carrier: Carrier) {
        match carrier {
            Carrier::Kernel => self.kernel += 1,
            Carrier::Ring => self.ring += 1,
            Carrier::Stack => self.stack += 1,
        }
    }
}

/// Two users that may not share memory, and have connections to each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Strangers {
    /// Their numbers, in ascending order.
    pub uids: [u32; 2],
    /// Connections that were refused for that.
    pub connections: u64,
}

impl Strangers {
    /// Users decide how many pairs there are. Any more are counted as `user-pair` only.
    pub const MOST: usize = 64;
}

/// A connection that waits for its other end, here or by the stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// Process id of its program.
    pub pid: u32,
    /// Its own address.
    pub local: String,
    /// The address of the other end.
    pub remote: String,
    /// It is too little used to be offered for its own sake.
    pub passive: bool,
    /// Why the stack has not taken it.
    pub declined: Option<String>,
}

/// What the stack does, and what those before it have done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// Process id of its keeper; absent: there is no stack.
    pub pid: Option<u32>,
    /// Connections that it carries now.
    pub carries: u64,
    /// `seen`: connections that it was shown. `upgraded`: how often it has taken one; `returned`: how often it has given one back.
    /// Bytes by ring: received from programs, and sent to them.
    #[serde(flatten)]
    pub totals: Totals,
    /// How often it gave each reason.
    pub reasons: Reasons,
}

/// A process that has joined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Path of its program.
    pub exe: String,
    /// User of the process.
    pub uid: u32,
    /// Number of the member.
    pub member: u64,
    /// Counters of the process.
    #[serde(flatten)]
    pub totals: Totals,
    /// How often the process gave each reason.
    pub reasons: Reasons,
    /// Detached: its connections stay on the kernel.
    pub hold: bool,
    /// Connections that earlier brokers have paired, and that are not in [`Status::connections`]. The process counts them when it looks
    /// for the broker.
    #[serde(default)]
    pub earlier_connections: u64,
}

/// Counters of processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// TCP connections made.
    pub seen: u64,
    /// ... of which at least one direction went by ring.
    pub upgraded: u64,
    /// ... and came back to the kernel at least once before their end.
    pub returned: u64,
    /// Bytes received by ring.
    pub ring_rx: u64,
    /// Bytes sent by ring.
    pub ring_tx: u64,
    /// Bytes received by kernel.
    pub kernel_rx: u64,
    /// Bytes sent by kernel.
    pub kernel_tx: u64,
}

impl Totals {
    /// Adds without overflow: the numbers come from the members.
    pub fn add(&mut self, other: &Totals) {
        let add = |to: &mut u64, n: u64| *to = to.saturating_add(n);
        add(&mut self.seen, other.seen);
        add(&mut self.upgraded, other.upgraded);
        add(&mut self.returned, other.returned);
        add(&mut self.ring_rx, other.ring_rx);
        add(&mut self.ring_tx, other.ring_tx);
        add(&mut self.kernel_rx, other.kernel_rx);
        add(&mut self.kernel_tx, other.kernel_tx);
    }
}

/// The shared memory of a pair of processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Number of the link.
    pub id: u32,
    /// Process ids of its two sides.
    pub pids: [u32; 2],
    /// Slots that have a connection.
    pub slots_used: u64,
    /// Size of each ring in bytes.
    pub ring_size: u64,
    /// Bytes of memory that are really in use.
    pub memory_bytes: u64,
}

/// A connection that has a slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// `LINK.SLOT`, the name for `sidestep detach`.
    pub id: String,
    /// Process ids of its two ends.
    pub pids: [u32; 2],
    /// Address of the first process's end, as that process sees it.
    pub local: String,
    /// The address of the second process.
    pub remote: String,
    /// Detached: it stays on the kernel.
    pub hold: bool,
    /// From the first process to the second, and back.
    pub directions: [Direction; 2],
}

/// One direction of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Direction {
    /// Process id of the writer.
    pub from_pid: u32,
    /// Process id of the reader.
    pub to_pid: u32,
    /// What carries the bytes now.
    pub carrier: Carrier,
    /// Bytes by ring so far.
    pub ring_bytes: u64,
    /// Bytes by kernel so far.
    pub kernel_bytes: u64,
    /// Number of the present or last stretch of ring; 0: none yet.
    pub stretch: u32,
    /// Bytes published by the writer, as a position in the stream.
    pub written_to: u64,
    /// Bytes consumed by the reader; absent while the kernel carries.
    pub read_to: Option<u64>,
    /// Why the writer last went back to the kernel.
    pub reason: Option<String>,
}

/// What carries bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Carrier {
    /// Kernel TCP.
    #[default]
    Kernel,
    /// Shared memory.
    Ring,
    /// Shared memory to the stack, which carries the connection to another host.
    Stack,
}

impl Carrier {
    /// As in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Carrier::Kernel => "kernel",
            Carrier::Ring => "ring",
            Carrier::Stack => "stack",
        }
    }
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
