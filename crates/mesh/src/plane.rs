//! The interface between the reconciler and a data plane. The kernel's maps are one (crates/ebpf), tables in memory are another
//! (tests).

use crate::address::{Address, Endpoint, Protocol};
use ipnet::IpNet;
use std::fmt;
use std::io;

/// Where a Service is reached. Mirrors `frontend_key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrontendKey {
    /// With [`Scope::Node`]: the unspecified address of its family.
    pub address: Address,
    /// The dialled port, in host order.
    pub port: u16,
    /// A TCP port and a UDP port of the same number are two frontends.
    pub protocol: Protocol,
    /// Whether `address` counts.
    pub scope: Scope,
}

impl fmt::Display for FrontendKey {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.scope {
            Scope::Address => write!(f, "{} {}", self.protocol, Endpoint { address: self.address, port: self.port }),
            Scope::Node => write!(f, "{} NodePort {}", self.protocol, self.port),
            Scope::External | Scope::Pod => {
                let endpoint = Endpoint { address: self.address, port: self.port };
                write!(f, "{} packets to {endpoint}{}", self.protocol, self.scope.senders())
            }
            Scope::ExternalNode | Scope::PodNode => {
                write!(f, "{} packets to NodePort {}{}", self.protocol, self.port, self.scope.senders())
            }
        }
    }
}

/// At which addresses a frontend is reached, and by whom. Mirrors `enum scope`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// This one address; sockets that dial it.
    Address,
    /// Every address of the node in the key's family; sockets that dial one.
    Node,
    /// This one address; packets to it.
    External,
    /// Every address of the node; packets to one.
    ExternalNode,
    /// This one address; packets that pods send to it, where those from outside have another traffic policy.
    Pod,
    /// Every address of the node; packets that pods send to one, as `Pod`.
    PodNode,
}

impl Scope {
    /// All of them.
    pub const ALL: [Scope; 6] =
        [Scope::Address, Scope::Node, Scope::External, Scope::ExternalNode, Scope::Pod, Scope::PodNode];

    /// Whether the key's address stands for all addresses of the node.
    pub fn is_of_node(self) -> bool {
        matches!(self, Scope::Node | Scope::ExternalNode | Scope::PodNode)
    }

    /// Whether packets are translated, not sockets.
    pub fn is_of_packets(self) -> bool {
        !matches!(self, Scope::Address | Scope::Node)
    }

    fn senders(self) -> &'static str {
        if matches!(self, Scope::Pod | Scope::PodNode) { " from pods" } else { "" }
    }
}

/// What happens to a connection to a frontend. Mirrors `frontend`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frontend {
    /// Index of the counters; the same for all frontends of one [`PortKey`](crate::table::PortKey). Affinity and members use it
    /// too.
    pub service: u32,
    /// Index of the list's first slot.
    pub first: u32,
    /// How many slots the list has. 0: connections are refused at once.
    pub count: u32,
    /// Seconds after its last use for which a client keeps its backend. 0: no affinity.
    pub affinity_seconds: u32,
    /// The `service` of the port's other traffic policy, with which it shares affinity. 0: none.
    pub sibling: u32,
    /// The programs take two random backends and choose the one with fewer open connections.
    pub least_connections: bool,
    /// No program of the node may bind to it.
    pub held: bool,
    /// Packets get an address of the node as their source, so that answers come back through it.
    pub masquerade: bool,
    /// Packets are translated only if their source is in a [`Source`] range of `service`.
    pub restricted: bool,
    /// No endpoint serves here, but others do elsewhere: packets are dropped. Otherwise packets without an endpoint are refused.
    pub elsewhere: bool,
}

/// Addresses that may use the restricted frontends of a Service's port. Mirrors `source_key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Source {
    /// Number of the port, as [`Frontend::service`].
    pub service: u32,
    /// The network's address; the bits of hosts are 0.
    pub address: Address,
    /// Bits of `address` that count, of 128: an IPv4 network's prefix length and 96.
    pub length: u8,
}

impl Source {
    /// This network, for this port.
    pub fn new(service: u32, network: &IpNet) -> Source {
        let above = if network.addr().is_ipv4() { 96 } else { 0 };
        Source { service, address: network.trunc().addr().into(), length: above + network.prefix_len() }
    }
}

/// An element of a list of backends. Mirrors `slot`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Number of a backend.
    pub backend: u32,
    /// Number of the backend that shares the slot; the same as `backend` if none does.
    pub other: u32,
    /// Random numbers up to this one choose `backend`, greater ones `other`.
    pub own: u32,
}

impl Slot {
    /// A slot that always chooses this backend.
    pub(crate) fn own(backend: u32) -> Slot {
        Slot { backend, other: backend, own: u32::MAX }
    }
}

/// A backend that belongs to a Service. Kept only where choices are remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Member {
    /// Number of the port, as [`Frontend::service`].
    pub service: u32,
    /// The backend's number, as in a [`Slot`].
    pub backend: u32,
}

/// How many entries of each kind there can be, or are in use.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Elements of all lists together.
    pub slots: u32,
    /// Backends, each counted once. As a capacity it includes number 0, which is never used.
    pub backends: u32,
    /// Numbers of ports of Services. As a capacity it includes number 0, which is never used.
    pub services: u32,
    /// Addresses and ports at which Services are reached.
    pub frontends: u32,
    /// Pairs of a Service and a backend, kept for ports that remember choices.
    pub members: u32,
    /// Pairs of a Service and a network of its source ranges.
    pub sources: u32,
}

/// What a data plane holds from an earlier process of the agent. Entries that cannot be read are left out.
#[derive(Clone, Debug, Default)]
pub struct Existing {
    /// In no particular order.
    pub frontends: Vec<(FrontendKey, Frontend)>,
    /// Backends that slots in use or members name.
    pub backends: Vec<(u32, Endpoint)>,
    /// In no particular order; some may be of Services that no frontend names any more.
    pub members: Vec<Member>,
    /// In no particular order; as with members, some may be of nobody.
    pub sources: Vec<Source>,
}

/// Tables that programs read while they are written. Each frontend changes at once; programs read everything else only after
/// a frontend refers to it.
///
/// Errors are those of the system calls behind it. After an error the tables are between old and new, every part of them is
/// valid, and the same call may be repeated.
pub trait DataPlane {
    /// The capacities, which never change.
    fn sizes(&self) -> Sizes;
    /// Asked once, before anything is written.
    fn existing(&mut self) -> io::Result<Existing>;
    /// Resets the counters of a number that is about to be given to another Service.
    fn clear_service(&mut self, service: u32) -> io::Result<()>;
    /// Writes a backend under a number that no list refers to, or writes the same again.
    fn put_backend(&mut self, number: u32, endpoint: Endpoint) -> io::Result<()>;
    /// Writes a list from index `first` on, over slots that no frontend refers to.
    fn put_slots(&mut self, first: u32, slots: &[Slot]) -> io::Result<()>;
    /// Members that are there already are no error.
    fn put_members(&mut self, members: &[Member]) -> io::Result<()>;
    /// Sources that are there already are no error.
    fn put_sources(&mut self, sources: &[Source]) -> io::Result<()>;
    /// Missing sources are no error.
    fn remove_sources(&mut self, sources: &[Source]) -> io::Result<()>;
    /// Adds or replaces each of them atomically.
    fn put_frontends(&mut self, frontends: &[(FrontendKey, Frontend)]) -> io::Result<()>;
    /// Programs then treat them as ordinary addresses. Missing ones are no error.
    fn remove_frontends(&mut self, keys: &[FrontendKey]) -> io::Result<()>;
    /// Remembered choices of these backends no longer count. Missing members are no error.
    fn remove_members(&mut self, members: &[Member]) -> io::Result<()>;
    /// Returns when no program still uses what a frontend referred to before the last change.
    fn wait_for_readers(&mut self) -> io::Result<()>;
}
