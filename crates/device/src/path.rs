//! Which way a connection's packets take: device, next hop, link addresses, MTU.

use netlink_packet_core::NLM_F_CREATE;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkLayerType, LinkMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteType, RouteVia};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use sidestep_netlink::request;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// A link-layer address of Ethernet.
pub type Mac = [u8; 6];

/// A TCP connection, with what rules may choose its route by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The local end. Its address is one of this network namespace, or of one that it routes for.
    pub local: SocketAddr,
    /// The remote end.
    pub remote: SocketAddr,
    /// Whose socket it is. Rules about users apply to sockets of this network namespace only.
    pub user: u32,
    /// TOS or traffic class of its packets.
    pub traffic_class: u8,
}

/// The way from a local to a remote address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The local address.
    pub local: IpAddr,
    /// The remote address.
    pub remote: IpAddr,
    /// Index of the device by which packets leave. A VLAN device is a device of its own.
    pub device: u32,
    /// Address of the router, or the remote address itself.
    pub next_hop: IpAddr,
    /// The device's own link address.
    pub source: Mac,
    /// The next hop's link address.
    pub destination: Mac,
    /// The most bytes of an IP packet: of the device's MTU and the route's the lower one.
    pub mtu: u32,
    /// The device's MTU in bytes.
    pub link_mtu: u32,
    /// Whether the kernel knows the next hop to be reachable.
    pub neighbour: Freshness,
    /// Whether the local address is one of this network namespace.
    pub is_own: bool,
}

/// What the kernel knows of a neighbour's link address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// It has been confirmed, or needs no confirmation.
    Confirmed,
    /// It was confirmed some time ago. [`refresh`] makes the kernel ask the neighbour.
    Stale,
}

/// Why there is no path for frames.
#[derive(Debug, thiserror::Error)]
pub enum NoPath {
    /// No route leads there: it is missing, or says unreachable, prohibit or blackhole.
    #[error("no route to {remote}")]
    NoRoute {
        /// The remote address.
        remote: IpAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// The remote address is one of this network namespace, or not unicast.
    #[error("{0} is not an address of another host")]
    NotRemote(IpAddr),
    /// The route leads through a tunnel or another encapsulation.
    #[error("the route to {0} encapsulates packets")]
    Encapsulated(IpAddr),
    /// The device is not up, or has no Ethernet addresses.
    #[error("the device with index {0} is down, or no Ethernet device")]
    NotEthernet(u32),
    /// The neighbour's link address is not known. The kernel asks the neighbour now: ask again on [`crate::watch::Change::Neighbour`].
    #[error("the link address of {0} is not known yet")]
    Unresolved(IpAddr),
    /// The kernel did not answer.
    #[error("ask the kernel for the way to {remote}")]
    Kernel {
        /// The remote address.
        remote: IpAddr,
        /// The kernel's error.
        source: io::Error,
    },
}

/// Finds the way of the connection's packets. Asks for an unknown neighbour.
///
/// # Errors
///
/// The reasons of [`NoPath`].
pub fn resolve(flow: &Flow) -> Result<Path, NoPath> {
    let (local, remote) = flow.addresses();
    let kernel = |source| NoPath::Kernel { remote, source };
    let route = route(flow)?;
    let link = link(route.device).map_err(kernel)?.ok_or(NoPath::NotEthernet(route.device))?;
    let found = neighbour(route.device, route.next_hop).map_err(kernel)?;
    let Some((destination, neighbour)) = found else {
        ask(route.device, route.next_hop).map_err(kernel)?;
        return Err(NoPath::Unresolved(route.next_hop));
    };
    Ok(Path {
        local,
        remote,
        device: route.device,
        next_hop: route.next_hop,
        source: link.address,
        destination,
        mtu: route.mtu.map_or(link.mtu, |mtu| mtu.min(link.mtu)),
        link_mtu: link.mtu,
        neighbour,
        is_own: route.is_own,
    })
}

/// Tells the kernel that the path's neighbour is in use, which the kernel cannot see: a stale entry would be removed in the end. The
/// kernel then asks the neighbour itself, after `delay_first_probe_time` (5 s). Call it every few seconds while frames are sent to
/// a neighbour that is [`Freshness::Stale`]; a confirmed one is left alone, and so is one that the administrator has set.
///
/// # Errors
///
/// The kernel's; it takes CAP_NET_ADMIN.
pub fn refresh(path: &Path) -> io::Result<()> {
    let entry = entry(path.device, path.next_hop)?;
    if entry.is_some_and(|entry| entry.header.state == NeighbourState::Permanent) {
        // The kernel would forget it: to it, an entry that is used is no longer permanent.
        return Ok(());
    }
    ask(path.device, path.next_hop)
}

struct Route {
    device: u32,
    next_hop: IpAddr,
    mtu: Option<u32>,
    /// Whether packets begin here.
    is_own: bool,
}

impl Flow {
    /// The local address and the remote one.
    fn addresses(&self) -> (IpAddr, IpAddr) {
        (self.local.ip().to_canonical(), self.remote.ip().to_canonical())
    }

    /// The kernel's route for packets with this traffic class. `origin`: whose they are, or where they came in.
    fn find_route(&self, traffic_class: u8, origin: RouteAttribute) -> io::Result<RouteMessage> {
        let (local, remote) = self.addresses();
        let attributes = vec![
            RouteAttribute::Destination(address(remote)),
            RouteAttribute::Source(address(local)),
            RouteAttribute::IpProto(libc::IPPROTO_TCP as u8),
            RouteAttribute::Sport(self.local.port()),
            RouteAttribute::Dport(self.remote.port()),
            origin,
        ];
        find_route(remote, traffic_class, attributes)
    }
}

/// A local address of another network namespace (a pod's) is routed as a packet that came in from there.
fn route(flow: &Flow) -> Result<Route, NoPath> {
    let (local, remote) = flow.addresses();
    let no_route = |source| NoPath::NoRoute { remote, source };
    let back = find_route(local, 0, vec![RouteAttribute::Destination(address(local))]).map_err(no_route)?;
    let is_own = back.header.kind == RouteType::Local;
    let found = if is_own {
        // For a TCP socket's own packets over IPv6 Linux does not look at their class (inet6_csk_route_socket).
        let class = if remote.is_ipv4() { flow.traffic_class } else { 0 };
        flow.find_route(class, RouteAttribute::Uid(flow.user))
    } else {
        flow.find_route(flow.traffic_class, RouteAttribute::Iif(read_route(local, &back)?.device))
    };
    Ok(Route { is_own, ..read_route(remote, &found.map_err(no_route)?)? })
}

fn find_route(to: IpAddr, traffic_class: u8, attributes: Vec<RouteAttribute>) -> io::Result<RouteMessage> {
    let mut message = RouteMessage::default();
    let bits = if to.is_ipv4() { 32 } else { 128 };
    message.header.address_family = family(to);
    message.header.tos = traffic_class;
    message.header.destination_prefix_length = bits;
    let has_source = attributes.iter().any(|attribute| matches!(attribute, RouteAttribute::Source(_)));
    message.header.source_prefix_length = if has_source { bits } else { 0 };
    message.attributes = attributes;
    let found = request(RouteNetlinkMessage::GetRoute(message), 0)?.into_iter().find_map(|message| match message {
        RouteNetlinkMessage::NewRoute(route) => Some(route),
        _ => None,
    });
    found.ok_or_else(|| io::Error::from_raw_os_error(libc::ENETUNREACH))
}

fn read_route(remote: IpAddr, message: &RouteMessage) -> Result<Route, NoPath> {
    let refused = |code| NoPath::NoRoute { remote, source: io::Error::from_raw_os_error(code) };
    match message.header.kind {
        RouteType::Unicast => {}
        RouteType::Unreachable | RouteType::BlackHole | RouteType::Prohibit => return Err(refused(libc::EHOSTUNREACH)),
        _ => return Err(NoPath::NotRemote(remote)),
    }
    let (mut device, mut next_hop, mut mtu) = (None, remote, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(index) => device = Some(*index),
            RouteAttribute::Gateway(RouteAddress::Inet(ip)) | RouteAttribute::Via(RouteVia::Inet(ip)) => {
                next_hop = (*ip).into();
            }
            RouteAttribute::Gateway(RouteAddress::Inet6(ip)) | RouteAttribute::Via(RouteVia::Inet6(ip)) => {
                next_hop = (*ip).into();
            }
            RouteAttribute::Metrics(metrics) => mtu = metrics.iter().find_map(mtu_of),
            RouteAttribute::EncapType(_) | RouteAttribute::Encap(_) => return Err(NoPath::Encapsulated(remote)),
            _ => {}
        }
    }
    Ok(Route { device: device.ok_or_else(|| refused(libc::ENETUNREACH))?, next_hop, mtu, is_own: false })
}

fn mtu_of(metric: &RouteMetric) -> Option<u32> {
    match metric {
        RouteMetric::Mtu(mtu) if *mtu > 0 => Some(*mtu),
        _ => None,
    }
}

struct Link {
    address: Mac,
    mtu: u32,
}

/// None: it is down, or has no Ethernet address.
fn link(device: u32) -> io::Result<Option<Link>> {
    let mut message = LinkMessage::default();
    message.header.index = device;
    let found = request(RouteNetlinkMessage::GetLink(message), 0)?;
    Ok(found.iter().find_map(|message| match message {
        RouteNetlinkMessage::NewLink(link) => read_link(link),
        _ => None,
    }))
}

fn read_link(link: &LinkMessage) -> Option<Link> {
    if !is_running(link) || link.header.link_layer_type != LinkLayerType::Ether {
        return None;
    }
    Some(Link { address: link_address(link)?, mtu: link_mtu(link)? })
}

pub(crate) fn is_running(link: &LinkMessage) -> bool {
    link.header.flags.contains(LinkFlags::Up | LinkFlags::Running)
}

pub(crate) fn link_address(link: &LinkMessage) -> Option<Mac> {
    link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Address(address) => Mac::try_from(address.as_slice()).ok(),
        _ => None,
    })
}

pub(crate) fn link_mtu(link: &LinkMessage) -> Option<u32> {
    link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Mtu(mtu) => Some(*mtu),
        _ => None,
    })
}

/// None: its link address is not known.
fn neighbour(device: u32, ip: IpAddr) -> io::Result<Option<(Mac, Freshness)>> {
    Ok(entry(device, ip)?.as_ref().and_then(usable))
}

/// One entry only: a list of all would take long on a host with many neighbours, and the caller may serve all connections.
fn entry(device: u32, ip: IpAddr) -> io::Result<Option<NeighbourMessage>> {
    let found = match request(RouteNetlinkMessage::GetNeighbour(about(device, ip)), 0) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
        found => found?,
    };
    Ok(found.into_iter().find_map(|message| match message {
        RouteNetlinkMessage::NewNeighbour(entry) => Some(entry),
        _ => None,
    }))
}

/// A request about this neighbour.
fn about(device: u32, ip: IpAddr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    (message.header.family, message.header.ifindex) = (family(ip), device);
    let destination = match ip {
        IpAddr::V4(ip) => NeighbourAddress::Inet(ip),
        IpAddr::V6(ip) => NeighbourAddress::Inet6(ip),
    };
    message.attributes = vec![NeighbourAttribute::Destination(destination)];
    message
}

pub(crate) fn neighbour_address(entry: &NeighbourMessage) -> Option<IpAddr> {
    entry.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(ip)) => Some((*ip).into()),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(ip)) => Some((*ip).into()),
        _ => None,
    })
}

/// The link address that the kernel itself would send to. None: it would ask first.
pub(crate) fn usable(entry: &NeighbourMessage) -> Option<(Mac, Freshness)> {
    let freshness = match entry.header.state {
        NeighbourState::Reachable | NeighbourState::Permanent => Freshness::Confirmed,
        NeighbourState::Stale | NeighbourState::Delay | NeighbourState::Probe => Freshness::Stale,
        _ => return None,
    };
    let address = entry.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(address) => Mac::try_from(address.as_slice()).ok(),
        _ => None,
    })?;
    Some((address, freshness))
}

/// Marks the neighbour as used. The kernel asks it if its link address is unknown or stale.
fn ask(device: u32, ip: IpAddr) -> io::Result<()> {
    let mut message = about(device, ip);
    message.header.flags = NeighbourFlags::Use;
    request(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE).map(drop)
}

fn family(ip: IpAddr) -> AddressFamily {
    if ip.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn address(ip: IpAddr) -> RouteAddress {
    match ip {
        IpAddr::V4(ip) => RouteAddress::Inet(ip),
        IpAddr::V6(ip) => RouteAddress::Inet6(ip),
    }
}
