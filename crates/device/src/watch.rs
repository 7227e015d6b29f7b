//! Notices when a path may have become stale.

use crate::path::{Mac, Path, is_running, link_address, link_mtu, neighbour_address, usable};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::AddressAttribute;
use netlink_packet_route::link::LinkMessage;
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use sidestep_netlink::parse;
use std::io;
use std::net::IpAddr;

/// RTNLGRP_LINK, NEIGH, IPV4_IFADDR, IPV4_ROUTE, IPV4_RULE, IPV6_IFADDR, IPV6_ROUTE and IPV6_RULE of linux/rtnetlink.h.
const GROUPS: [u32; 8] = [1, 3, 5, 7, 8, 9, 11, 19];

/// A change in the network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A neighbour's entry.
    Neighbour {
        /// Index of the device that it is a neighbour at.
        device: u32,
        /// Its address.
        address: IpAddr,
        /// Its link address; None: it is not known any more.
        link: Option<Mac>,
    },
    /// A route was added, changed or removed.
    Route {
        /// Its destination. For a default route, the unspecified address.
        destination: IpAddr,
        /// Length of the destination's prefix in bits.
        prefix: u8,
    },
    /// A device was changed.
    Link {
        /// Its index.
        device: u32,
        /// Link address and MTU; None: it is down or gone.
        up: Option<(Mac, u32)>,
    },
    /// An address was removed from a device.
    AddressRemoved(IpAddr),
    /// Rules about routes were changed.
    Rules,
    /// There were more changes than the kernel could keep: anything may have changed.
    Overrun,
}

impl Change {
    /// Whether the path may not be right any more: it has to be resolved again. A cause for doubt suffices.
    pub fn concerns(&self, path: &Path) -> bool {
        match *self {
            Change::Neighbour { device, address, link } => {
                device == path.device && address == path.next_hop && link != Some(path.destination)
            }
            Change::Route { destination, prefix } => {
                contains(destination, prefix, path.remote) || contains(destination, prefix, path.local)
            }
            Change::Link { device, up } => device == path.device && up != Some((path.source, path.link_mtu)),
            Change::AddressRemoved(address) => address == path.local,
            Change::Rules | Change::Overrun => true,
        }
    }
}

fn contains(net: IpAddr, prefix: u8, ip: IpAddr) -> bool {
    let differing = match (net, ip) {
        (IpAddr::V4(net), IpAddr::V4(ip)) => (net.to_bits() ^ ip.to_bits()).leading_zeros(),
        (IpAddr::V6(net), IpAddr::V6(ip)) => (net.to_bits() ^ ip.to_bits()).leading_zeros(),
        _ => return false,
    };
    differing >= u32::from(prefix)
}

/// Receives changes. Open it before paths are resolved, so that none is missed.
///
/// The descriptor of [`AsFd`] is readable while there are changes.
pub struct Watch {
    socket: Socket,
}

impl Watch {
    /// Watches the thread's network namespace.
    ///
    /// # Errors
    ///
    /// The kernel's. No capability is needed.
    pub fn open() -> io::Result<Watch> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind(&SocketAddr::new(0, 0))?;
        socket.set_non_blocking(true)?;
        GROUPS.iter().try_for_each(|group| socket.add_membership(*group))?;
        Ok(Watch { socket })
    }

    /// The changes since the last call. Does not wait.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn changes(&mut self) -> io::Result<Vec<Change>> {
        let mut changes = Vec::new();
        // So many datagrams at a time, so that a flood of changes does not keep the caller here.
        for _ in 0..256 {
            match self.socket.recv_from_full() {
                Ok((datagram, sender)) if sender.port_number() == 0 => read(&datagram, &mut changes),
                Ok(_) => {} // not from the kernel
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => changes.push(Change::Overrun),
                Err(error) => return Err(error),
            }
        }
        Ok(changes)
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the socket has the descriptor, and is borrowed as long as the result.
        unsafe { BorrowedFd::borrow_raw(self.socket.as_raw_fd()) }
    }
}

fn read(datagram: &[u8], changes: &mut Vec<Change>) {
    let mut messages = Vec::new();
    if parse(datagram, &mut messages).is_err() {
        changes.push(Change::Overrun);
    }
    changes.extend(messages.iter().filter_map(change));
}

fn change(message: &RouteNetlinkMessage) -> Option<Change> {
    match message {
        RouteNetlinkMessage::NewNeighbour(entry) => {
            let link = usable(entry).map(|(link, _)| link);
            Some(Change::Neighbour { device: entry.header.ifindex, address: neighbour_address(entry)?, link })
        }
        RouteNetlinkMessage::DelNeighbour(entry) => {
            Some(Change::Neighbour { device: entry.header.ifindex, address: neighbour_address(entry)?, link: None })
        }
        RouteNetlinkMessage::NewRoute(route) | RouteNetlinkMessage::DelRoute(route) => Some(changed_route(route)),
        RouteNetlinkMessage::NewLink(link) => Some(Change::Link { device: link.header.index, up: up(link) }),
        RouteNetlinkMessage::DelLink(link) => Some(Change::Link { device: link.header.index, up: None }),
        RouteNetlinkMessage::DelAddress(message) => {
            let find = |attribute: &AddressAttribute| match attribute {
                AddressAttribute::Local(ip) => Some(*ip),
                _ => None,
            };
            let any = |attribute: &AddressAttribute| match attribute {
                AddressAttribute::Address(ip) => Some(*ip),
                _ => None,
            };
            let mut all = message.attributes.iter();
            all.clone().find_map(find).or_else(|| all.find_map(any)).map(Change::AddressRemoved)
        }
        RouteNetlinkMessage::NewRule(_) | RouteNetlinkMessage::DelRule(_) => Some(Change::Rules),
        _ => None,
    }
}

fn up(link: &LinkMessage) -> Option<(Mac, u32)> {
    Some((link_address(link)?, link_mtu(link)?)).filter(|_| is_running(link))
}

fn changed_route(route: &RouteMessage) -> Change {
    let destination = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(RouteAddress::Inet(ip)) => Some(IpAddr::from(*ip)),
        RouteAttribute::Destination(RouteAddress::Inet6(ip)) => Some(IpAddr::from(*ip)),
        _ => None,
    });
    let any = match route.header.address_family {
        netlink_packet_route::AddressFamily::Inet => IpAddr::from([0u8; 4]),
        _ => IpAddr::from([0u8; 16]),
    };
    Change::Route { destination: destination.unwrap_or(any), prefix: route.header.destination_prefix_length }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Freshness;

    fn path() -> Path {
        Path {
            local: "10.0.0.1".parse().unwrap(),
            remote: "10.9.0.2".parse().unwrap(),
            device: 3,
            next_hop: "10.0.0.254".parse().unwrap(),
            source: [1; 6],
            destination: [2; 6],
            mtu: 1400,
            link_mtu: 1500,
            neighbour: Freshness::Stale,
            is_own: true,
        }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_route_concerns_the_addresses_in_it() {
        let route = |text, prefix| Change::Route { destination: ip(text), prefix }.concerns(&path());
        assert!(route("0.0.0.0", 0) && route("10.9.0.0", 16) && route("10.9.0.2", 32) && route("10.0.0.0", 24));
        assert!(!route("10.9.0.3", 32) && !route("11.0.0.0", 8) && !route("::", 0));
    }

    #[test]
    fn a_neighbour_concerns_if_its_link_address_is_another() {
        let hop = |device, text, link| Change::Neighbour { device, address: ip(text), link }.concerns(&path());
        assert!(hop(3, "10.0.0.254", None) && hop(3, "10.0.0.254", Some([3; 6])));
        assert!(!hop(3, "10.0.0.254", Some([2; 6])), "it has only been confirmed");
        assert!(!hop(4, "10.0.0.254", None) && !hop(3, "10.0.0.253", None));
    }

    #[test]
    fn a_device_concerns_if_it_is_down_or_its_mtu_or_address_changed() {
        let link = |device, up| Change::Link { device, up }.concerns(&path());
        assert!(link(3, None) && link(3, Some(([1; 6], 1400))) && link(3, Some(([9; 6], 1500))));
        assert!(!link(3, Some(([1; 6], 1500))) && !link(4, None));
    }

    #[test]
    fn what_cannot_be_told_concerns_all() {
        assert!(Change::Rules.concerns(&path()) && Change::Overrun.concerns(&path()));
        assert!(Change::AddressRemoved(ip("10.0.0.1")).concerns(&path()));
        assert!(!Change::AddressRemoved(ip("10.0.0.2")).concerns(&path()));
    }
}
