//! Connects UDP sockets whose backend has gone to another backend, on behalf of their processes. The kernel runs no program when
//! a connected socket sends, so nothing else redirects it. (kube-proxy's NAT works below the socket.)
//!
//! Meanwhile a process may do anything with its descriptors. So each one is checked again after it was duplicated into this
//! process, and only a UDP socket whose peer's name is still the address of its Service is changed.

use crate::closing::{Owner, close_elsewhere, may_take_of};
use crate::error::{Doing, Result};
use crate::layout::{MapData, address, endpoint, to_endpoint};
use crate::plane::Maps;
use crate::service_pins;
use libbpf_rs::Iter;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketAddrAny, ipproto, sockopt};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use sidestep_bpf::stale::StaleSkelBuilder;
use sidestep_bpf::stale::types::descriptor;
use sidestep_mesh::address::{Endpoint, Family, Protocol};
use sidestep_mesh::plane::{FrontendKey, Scope};
use std::collections::HashSet;
use std::io::Read;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// Counts of such sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Connected to another backend.
    pub moved: u64,
    /// Aborted earlier, and still without a backend.
    pub waiting: u64,
}

// SAFETY: integers only, whose sizes add up to the size of the whole, so nothing lies between them.
unsafe impl MapData for descriptor {}
const _: () = assert!(size_of::<descriptor>() == 2 * 4 + 20 + 2 * 4);

/// Searches the UDP sockets of all processes, and connects those whose backend has gone.
pub fn reconnect(pins: &Path) -> Result<Moved> {
    let maps = Maps::open(&service_pins::maps_path(pins)?)?;
    let (mut done, mut seen) = (Moved::default(), HashSet::new());
    for found in descriptors(pins)? {
        let Some(owner) = Owner::of(found.process) else { continue };
        if !may_take_of(&owner) {
            done.waiting += u64::from(found.aborted != 0);
            continue;
        }
        let Some(socket) = Socket::of(&found, owner, &mut seen) else { continue };
        let is_moved = socket.has_backends(&maps)? && socket.connect().is_ok();
        done.moved += u64::from(is_moved);
        done.waiting += u64::from(!is_moved && socket.was_aborted);
    }
    Ok(done)
}

/// The stale descriptors of all processes that this process sees.
fn descriptors(pins: &Path) -> Result<Vec<descriptor>> {
    let mut object = MaybeUninit::uninit();
    let mut open = StaleSkelBuilder::default().open(&mut object).doing("read the program that finds descriptors")?;
    service_pins::use_pinned(open.open_object_mut(), pins)?;
    let skeleton = open.load().doing("load the program that finds descriptors")?;
    let link = skeleton.progs.stale_descriptors.attach().doing("attach the iterator over descriptors")?;
    let mut bytes = Vec::new();
    Iter::new(&link).and_then(|mut found| Ok(found.read_to_end(&mut bytes)?)).doing("iterate over descriptors")?;
    Ok(bytes.chunks_exact(size_of::<descriptor>()).filter_map(descriptor::from_bytes).collect())
}

/// A process's UDP socket that was connected to a Service.
struct Socket {
    descriptor: OwnedFd,
    frontend: Endpoint,
    is_ipv6: bool,
    was_aborted: bool,
}

impl Socket {
    /// None: the descriptor is another socket by now, or this socket was already found by another descriptor.
    fn of(found: &descriptor, owner: Owner, seen: &mut HashSet<u64>) -> Option<Socket> {
        let process = pidfd_open(Pid::from_raw(found.process.try_into().ok()?)?, PidfdFlags::empty()).ok()?;
        let number = found.number.try_into().ok()?;
        let descriptor = pidfd_getfd(&process, number, PidfdGetfdFlags::empty()).ok()?;
        if !is_udp(&descriptor) {
            close_elsewhere(owner, descriptor);
            return None;
        }
        let layout = endpoint { address: address { word: found.frontend.address.word }, ..endpoint::default() };
        let frontend = to_endpoint(&endpoint { port: found.frontend.port, ..layout });
        let is_ipv6 = sockopt::socket_domain(&descriptor).ok()? == AddressFamily::INET6;
        let was_aborted = found.aborted != 0;
        let socket = Socket { descriptor, frontend, is_ipv6, was_aborted };
        (socket.is_as_found() && seen.insert(sockopt::socket_cookie(&socket.descriptor).ok()?)).then_some(socket)
    }

    /// getpeername() returns the dialled address. An aborted socket has no peer.
    fn is_as_found(&self) -> bool {
        match rustix::net::getpeername(&self.descriptor) {
            Ok(peer) => !self.was_aborted && peer.and_then(|peer| name(&peer)) == Some(self.frontend),
            Err(error) => self.was_aborted && error == rustix::io::Errno::NOTCONN,
        }
    }

    /// Whether connect() would find a backend. An address that is no longer a Service's is left alone.
    fn has_backends(&self, maps: &Maps) -> Result<bool> {
        let Endpoint { address, port } = self.frontend;
        let key = |address, scope| FrontendKey { address, port, protocol: Protocol::Udp, scope };
        let everywhere = Family::of(address.ip()).unspecified();
        let keys = [key(address, Scope::Address), key(everywhere, Scope::Node)];
        let found: Result<Vec<_>> = keys.iter().map(|key| maps.frontend(key)).collect();
        Ok(found?.into_iter().flatten().any(|frontend| frontend.count > 0))
    }

    /// Repeats the process's connect(), which for UDP does not block.
    fn connect(&self) -> rustix::io::Result<()> {
        let ip = match self.frontend.address.ip() {
            IpAddr::V4(v4) if self.is_ipv6 => v4.to_ipv6_mapped().into(),
            ip => ip,
        };
        rustix::net::connect(&self.descriptor, &SocketAddr::new(ip, self.frontend.port))
    }
}

fn is_udp(descriptor: &OwnedFd) -> bool {
    let is_ip = matches!(sockopt::socket_domain(descriptor), Ok(AddressFamily::INET | AddressFamily::INET6));
    is_ip && matches!(sockopt::socket_protocol(descriptor), Ok(Some(ipproto::UDP)))
}

/// The address of a socket's peer; for the IPv4 peer of an IPv6 socket the IPv4 address.
fn name(peer: &SocketAddrAny) -> Option<Endpoint> {
    let peer = SocketAddr::try_from(peer.clone()).ok()?;
    Some(Endpoint::new(peer.ip().to_canonical(), peer.port()))
}
