//! What a socket proves. A member proves that it holds a socket by sending its descriptor. Of the member's words the broker
//! only uses the number of the offer.

use crate::addr::Endpoint;
use crate::raw::sock;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::net::{AddressFamily, SocketType, ipproto, sockopt};
use std::net::SocketAddr;

/// The part of the network in which an address is unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AddressSpace {
    /// Cookie of the network namespace.
    pub netns: u64,
    /// Interface the socket is bound to (SO_BINDTODEVICE, VRF, link-local addresses); 0: none.
    pub device: u32,
    /// In a network namespace that a user namespace of a pod owns: that pod's UID. Addresses there are proof within the pod only.
    pub pod: Option<u128>,
}

/// One end of an established connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketFacts {
    /// The kernel's number of the socket, unique until the next boot.
    pub cookie: u64,
    /// In which its addresses are unique.
    pub space: AddressSpace,
    /// Its own address.
    pub local: Endpoint,
    /// The address of the other end.
    pub remote: Endpoint,
    /// The address that the caller called before REDIRECT or DNAT (conntrack), if the kernel knows it and it is
    /// needed to find this end.
    pub original: Option<Endpoint>,
}

/// Why a descriptor is no proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoProof {
    /// Not a TCP socket.
    NotTcp,
    /// TCP, but not (or no longer) connected.
    NotConnected,
    /// The kernel reports no cookie or namespace (before Linux 5.14).
    OldKernel,
}

/// Reads the facts of a connected TCP socket from the kernel.
pub fn identify(fd: impl AsFd) -> Result<SocketFacts, NoProof> {
    let fd = fd.as_fd();
    let family = sockopt::socket_domain(fd).map_err(|_| NoProof::NotTcp)?;
    let kind = sockopt::socket_type(fd).map_err(|_| NoProof::NotTcp)?;
    // None for IPPROTO_MPTCP and other protocols that rustix does not name: not TCP either.
    let protocol = sockopt::socket_protocol(fd).ok().flatten();
    let inet = family == AddressFamily::INET || family == AddressFamily::INET6;
    if !inet || kind != SocketType::STREAM || protocol != Some(ipproto::TCP) {
        return Err(NoProof::NotTcp);
    }
    let address = |any: rustix::net::SocketAddrAny| SocketAddr::try_from(any).map_err(|_| NoProof::NotConnected);
    let local = address(rustix::net::getsockname(fd).map_err(|_| NoProof::NotConnected)?)?;
    let remote =
        address(rustix::net::getpeername(fd).map_err(|_| NoProof::NotConnected)?.ok_or(NoProof::NotConnected)?)?;
    let netns = sock::netns_cookie(fd).map_err(|_| NoProof::OldKernel)?;
    let device = sock::bound_device(fd).map_err(|_| NoProof::OldKernel)?;
    let (remote, original) = match sock::true_peer(fd) {
        // The eBPF programs have translated the connection, and report the true peer. Two sockets may have dialled the same
        // address from the same port, so the addresses that the sockets see are ambiguous. Their true addresses are not.
        Ok((ip, port)) => (Endpoint::new(ip, port), None),
        Err(_) => (remote.into(), original_destination(fd, family)),
    };
    Ok(SocketFacts {
        cookie: sockopt::socket_cookie(fd).map_err(|_| NoProof::OldKernel)?,
        space: AddressSpace { netns, device, pod: None },
        local: local.into(),
        remote,
        original,
    })
}

/// For an IPv6 socket both families are asked: a v4-mapped connection has its original destination under IPv4.
fn original_destination(fd: BorrowedFd<'_>, family: AddressFamily) -> Option<Endpoint> {
    let v4 = sockopt::ip_original_dst(fd).ok().map(SocketAddr::V4);
    let v6 = || match family {
        AddressFamily::INET6 => sockopt::ipv6_original_dst(fd).ok().map(SocketAddr::V6),
        _ => None,
    };
    v4.or_else(v6).map(Endpoint::from)
}
