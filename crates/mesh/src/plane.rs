//! What the reconciler needs of a data plane. The maps of the kernel are one (crates/ebpf), a few tables in memory are
//! another (tests).

use crate::address::{Address, Endpoint, Protocol};
use std::fmt;
use std::io;

/// Where a Service is reached. Twin of `frontend_key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrontendKey {
    /// With [`Scope::Node`] the unspecified address of its family.
    pub address: Address,
    pub port: u16,
    pub protocol: Protocol,
    pub scope: Scope,
}

impl fmt::Display for FrontendKey {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.scope {
            Scope::Address => write!(f, "{} {}", self.protocol, Endpoint { address: self.address, port: self.port }),
            Scope::Node => write!(f, "{} NodePort {}", self.protocol, self.port),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// This one address.
    Address,
    /// Every address of the node, of the key's family.
    Node,
}

/// What is done with a connection to a frontend. Twin of `frontend`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frontend {
    pub service: u32,
    pub first: u32,
    /// 0: refused at once.
    pub count: u32,
    /// 0: none.
    pub affinity_seconds: u32,
    /// The `service` of the port's other policy: what a client was given there is remembered here, too. 0: none.
    pub sibling: u32,
    pub least_connections: bool,
    /// On the node nobody else may bind to it.
    pub held: bool,
}

/// A place of a list of backends. Twin of `slot`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub backend: u32,
    pub other: u32,
    /// Up to this random number it is `backend`.
    pub own: u32,
}

impl Slot {
    /// A slot that holds nothing but this backend.
    pub fn own(backend: u32) -> Slot {
        Slot { backend, other: backend, own: u32::MAX }
    }
}

/// A backend that is one of a Service. Kept where a choice is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Member {
    pub service: u32,
    pub backend: u32,
}

/// How many of each there may be.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub slots: u32,
    pub backends: u32,
    pub services: u32,
    pub frontends: u32,
    pub members: u32,
}

/// What a data plane holds already, from an earlier life of the agent.
#[derive(Clone, Debug, Default)]
pub struct Existing {
    pub frontends: Vec<(FrontendKey, Frontend)>,
    /// Those that a slot in use names.
    pub backends: Vec<(u32, Endpoint)>,
    pub members: Vec<Member>,
}

/// Tables that programs read while they are written. Each frontend changes at once; nothing else is read by anybody
/// before a frontend leads to it.
///
/// Errors are those of the system calls behind it; after one the tables hold something between old and new, of which
/// every part is valid, and the same call may be made again.
pub trait DataPlane {
    fn sizes(&self) -> Sizes;
    fn existing(&mut self) -> io::Result<Existing>;
    /// A number that is given to another Service: its counters begin at 0.
    fn clear_service(&mut self, service: u32) -> io::Result<()>;
    fn put_backend(&mut self, number: u32, endpoint: Endpoint) -> io::Result<()>;
    fn put_slots(&mut self, first: u32, slots: &[Slot]) -> io::Result<()>;
    fn put_members(&mut self, members: &[Member]) -> io::Result<()>;
    fn put_frontends(&mut self, frontends: &[(FrontendKey, Frontend)]) -> io::Result<()>;
    fn remove_frontends(&mut self, keys: &[FrontendKey]) -> io::Result<()>;
    fn remove_members(&mut self, members: &[Member]) -> io::Result<()>;
    /// Returns when no program still uses what a frontend led to before the last change.
    fn wait_for_readers(&mut self) -> io::Result<()>;
}
