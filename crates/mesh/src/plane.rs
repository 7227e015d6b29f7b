//! The interface between the reconciler and a data plane. The kernel's maps are one (crates/ebpf), tables in memory are another
//! (tests).

use crate::address::{Address, Endpoint, Protocol};
use std::fmt;
use std::io;

/// Where a Service is reached. Mirrors `frontend_key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrontendKey {
    /// With [`Scope::Node`]: the unspecified address of its family.
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
    /// Every address of the node in the key's family.
    Node,
}

/// What happens to a connection to a frontend. Mirrors `frontend`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frontend {
    pub service: u32,
    pub first: u32,
    /// 0: connections are refused at once.
    pub count: u32,
    /// 0: no affinity.
    pub affinity_seconds: u32,
    /// The `service` of the port's other traffic policy, with which it shares affinity. 0: none.
    pub sibling: u32,
    pub least_connections: bool,
    /// No program of the node may bind to it.
    pub held: bool,
}

/// An element of a list of backends. Mirrors `slot`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub backend: u32,
    pub other: u32,
    /// Random numbers up to this one choose `backend`, greater ones `other`.
    pub own: u32,
}

impl Slot {
    /// A slot that always chooses this backend.
    pub fn own(backend: u32) -> Slot {
        Slot { backend, other: backend, own: u32::MAX }
    }
}

/// A backend that belongs to a Service. Kept only where choices are remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Member {
    pub service: u32,
    pub backend: u32,
}

/// The capacity for each kind of entry.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub slots: u32,
    pub backends: u32,
    pub services: u32,
    pub frontends: u32,
    pub members: u32,
}

/// What a data plane holds from an earlier process of the agent.
#[derive(Clone, Debug, Default)]
pub struct Existing {
    pub frontends: Vec<(FrontendKey, Frontend)>,
    /// Backends that slots in use name.
    pub backends: Vec<(u32, Endpoint)>,
    pub members: Vec<Member>,
}

/// Tables that programs read while they are written. Each frontend changes at once; programs read everything else only after
/// a frontend refers to it.
///
/// Errors are those of the system calls behind it. After an error the tables are between old and new, every part of them is
/// valid, and the same call may be repeated.
pub trait DataPlane {
    fn sizes(&self) -> Sizes;
    fn existing(&mut self) -> io::Result<Existing>;
    /// Resets the counters of a number that is about to be given to another Service.
    fn clear_service(&mut self, service: u32) -> io::Result<()>;
    fn put_backend(&mut self, number: u32, endpoint: Endpoint) -> io::Result<()>;
    fn put_slots(&mut self, first: u32, slots: &[Slot]) -> io::Result<()>;
    fn put_members(&mut self, members: &[Member]) -> io::Result<()>;
    fn put_frontends(&mut self, frontends: &[(FrontendKey, Frontend)]) -> io::Result<()>;
    fn remove_frontends(&mut self, keys: &[FrontendKey]) -> io::Result<()>;
    fn remove_members(&mut self, members: &[Member]) -> io::Result<()>;
    /// Returns when no program still uses what a frontend referred to before the last change.
    fn wait_for_readers(&mut self) -> io::Result<()>;
}
