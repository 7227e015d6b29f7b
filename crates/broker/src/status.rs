//! What `sidestep status --json` prints. Field names are stable; new ones may be added.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Count by reason name.
pub type Reasons = BTreeMap<String, u64>;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Of the protocol; libraries and the broker must agree on it.
    pub version: u32,
    pub address: String,
    pub pid: u32,
    /// The user that the broker runs as.
    pub uid: u32,
    /// `detach --all` is in force: new processes start detached.
    pub hold: bool,
    pub processes: Vec<Process>,
    pub links: Vec<Link>,
    pub connections: Vec<Connection>,
    /// Connections whose other end has not asked for an upgrade.
    pub waiting_offers: u64,
    /// Over processes alive and gone.
    pub totals: Totals,
    /// Over processes alive and gone.
    pub reasons: Reasons,
    /// What the broker itself has refused, whatever the processes say: offers by their reason, users and versions that
    /// may not join, and as `broken-peer` those who broke the protocol.
    #[serde(default)]
    pub refused: Reasons,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: u32,
    pub exe: String,
    pub uid: u32,
    pub member: u64,
    #[serde(flatten)]
    pub totals: Totals,
    pub reasons: Reasons,
    /// Detached: its connections stay on the kernel.
    pub hold: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    pub seen: u64,
    pub upgraded: u64,
    pub returned: u64,
    pub ring_rx: u64,
    pub ring_tx: u64,
    pub kernel_rx: u64,
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
    pub id: u32,
    pub pids: [u32; 2],
    pub slots_used: u64,
    /// Bytes.
    pub ring_size: u64,
    /// Bytes that are really there.
    pub memory_bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// `LINK.SLOT`, the name for `sidestep detach`.
    pub id: String,
    pub pids: [u32; 2],
    /// Addresses as the first process sees them.
    pub local: String,
    pub remote: String,
    /// Detached: it stays on the kernel.
    pub hold: bool,
    pub directions: [Direction; 2],
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Direction {
    pub from_pid: u32,
    pub to_pid: u32,
    pub carrier: Carrier,
    pub ring_bytes: u64,
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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Carrier {
    #[default]
    Kernel,
    Ring,
}
