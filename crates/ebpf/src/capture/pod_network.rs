//! Reads the interfaces, addresses and routes of a network namespace (rtnetlink(7)).

use crate::error::{Doing, Result};
use crate::netns;
use ipnet::IpNet;
use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use sidestep_mesh::capture::tables::{PodNetwork, Route};
use sidestep_netlink::request;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// The routing tables that every connection consults (local and main). Others need routing policies, which are not modelled.
const TABLES: [u32; 2] = [255, 254];

/// Reads the namespace of this file.
pub fn read(namespace: &Path) -> Result<PodNetwork> {
    netns::inside(namespace, read_here).at("enter", namespace)?.at("look at the routes of", namespace)
}

/// The same, with the namespace's cookie.
pub fn read_named(namespace: &Path) -> Result<(u64, PodNetwork)> {
    let seen = netns::inside(namespace, || Ok::<_, std::io::Error>((netns::cookie()?, read_here()?)));
    seen.at("enter", namespace)?.at("look at the routes of", namespace)
}

fn read_here() -> std::io::Result<PodNetwork> {
    let links = request(RouteNetlinkMessage::GetLink(LinkMessage::default()), NLM_F_DUMP)?;
    let addresses = request(RouteNetlinkMessage::GetAddress(AddressMessage::default()), NLM_F_DUMP)?;
    let routes = request(RouteNetlinkMessage::GetRoute(RouteMessage::default()), NLM_F_DUMP)?;
    let broadcasts = routes.iter().filter_map(broadcast).collect();
    let up: Vec<u32> = links.iter().filter_map(up).collect();
    let interfaces = links.into_iter().filter_map(interface).collect();
    let addresses: Vec<(u32, IpNet)> =
        addresses.iter().filter(|message| is_valid(message)).filter_map(address).collect();
    let mut found: Vec<Found> = routes.into_iter().filter_map(|message| route(message, &addresses)).collect();
    found.extend(addresses.iter().filter(|(index, _)| up.contains(index)).filter_map(|(_, net)| local(net.addr())));
    // Of several routes for a prefix the first one wins.
    found.sort_by_key(|route| (route.net, route.rank, route.metric));
    found.dedup_by_key(|route| route.net);
    Ok(PodNetwork {
        interfaces,
        addresses: addresses.iter().map(|(_, net)| net.addr()).collect(),
        broadcasts,
        routes: found.into_iter().map(|route| (route.net, route.route)).collect(),
    })
}

fn interface(message: RouteNetlinkMessage) -> Option<(String, u32)> {
    let RouteNetlinkMessage::NewLink(link) = message else { return None };
    let name = link.attributes.into_iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name),
        _ => None,
    })?;
    Some((name, link.header.index))
}

fn up(message: &RouteNetlinkMessage) -> Option<u32> {
    let RouteNetlinkMessage::NewLink(link) = message else { return None };
    link.header.flags.contains(LinkFlags::Up).then_some(link.header.index)
}

/// Another host has an address that failed duplicate address detection (RFC 4862).
fn is_valid(message: &RouteNetlinkMessage) -> bool {
    let RouteNetlinkMessage::NewAddress(address) = message else { return false };
    !address
        .attributes
        .iter()
        .any(|attribute| matches!(attribute, AddressAttribute::Flags(flags) if flags.contains(AddressFlags::Dadfailed)))
}

fn address(message: &RouteNetlinkMessage) -> Option<(u32, IpNet)> {
    let RouteNetlinkMessage::NewAddress(address) = message else { return None };
    let find = |local: bool| {
        address.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Local(ip) if local => Some(*ip),
            AddressAttribute::Address(ip) if !local => Some(*ip),
            _ => None,
        })
    };
    let ip = find(true).or_else(|| find(false))?;
    Some((address.header.index, IpNet::new(ip, address.header.prefix_len).ok()?))
}

fn broadcast(message: &RouteNetlinkMessage) -> Option<IpAddr> {
    let RouteNetlinkMessage::NewRoute(route) = message else { return None };
    let destination = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(to) => ip(to),
        _ => None,
    });
    destination.filter(|_| route.header.kind == RouteType::Broadcast)
}

/// The route of an IPv6 address in the local table. The kernel inserts it later than the address: from a work queue, and after
/// duplicate address detection. Without the route, the pod's connections to itself would be taken for incoming ones.
fn local(ip: IpAddr) -> Option<Found> {
    let found = Found { net: ip.into(), rank: 0, metric: u32::MAX, route: Route::Local { source: ip } };
    ip.is_ipv6().then_some(found)
}

struct Found {
    net: IpNet,
    /// The local table comes before the main one.
    rank: usize,
    metric: u32,
    route: Route,
}

fn route(message: RouteNetlinkMessage, addresses: &[(u32, IpNet)]) -> Option<Found> {
    let RouteNetlinkMessage::NewRoute(route) = message else { return None };
    let v4 = match route.header.address_family {
        AddressFamily::Inet => true,
        AddressFamily::Inet6 => false,
        _ => return None,
    };
    let mut its = Attributes { table: route.header.table.into(), ..Attributes::default() };
    route.attributes.iter().for_each(|attribute| its.apply(attribute));
    let rank = TABLES.iter().position(|table| *table == its.table)?;
    let any = if v4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let net = IpNet::new(its.destination.unwrap_or(any), route.header.destination_prefix_length).ok()?;
    let route = match route.header.kind {
        RouteType::Local => Route::Local { source: its.source.unwrap_or(net.addr()) },
        RouteType::Unicast => {
            let interface = its.interface?;
            let source = its.source.or_else(|| source(interface, its.gateway.unwrap_or(net.addr()), v4, addresses));
            Route::By { interface, source: source.unwrap_or(any) }
        }
        kind => Route::Nowhere { error: error_of(kind) },
    };
    Some(Found { net, rank, metric: its.metric, route })
}

/// The errno of connect(2) for this type of route.
fn error_of(kind: RouteType) -> u16 {
    let error = match kind {
        RouteType::Unreachable => libc::EHOSTUNREACH,
        RouteType::Prohibit => libc::EACCES,
        RouteType::BlackHole => libc::EINVAL,
        _ => libc::ENETUNREACH,
    };
    error as u16
}

/// The source address that the kernel would choose: of the interface's addresses the one nearest to the next hop.
fn source(interface: u32, next: IpAddr, v4: bool, addresses: &[(u32, IpNet)]) -> Option<IpAddr> {
    let its = addresses.iter().filter(|(index, net)| *index == interface && net.addr().is_ipv4() == v4);
    let link_local = |ip: IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    let mut best: Option<(bool, u32, IpAddr)> = None;
    for (_, net) in its {
        let fits =
            (link_local(net.addr()) == link_local(next), common_bits(net.addr(), next).min(net.prefix_len().into()));
        // Of equally near addresses the older one comes first.
        if best.is_none_or(|(scope, bits, _)| fits > (scope, bits)) {
            best = Some((fits.0, fits.1, net.addr()));
        }
    }
    best.map(|(_, _, ip)| ip)
}

fn common_bits(one: IpAddr, other: IpAddr) -> u32 {
    match (one, other) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        _ => 0,
    }
}

#[derive(Default)]
struct Attributes {
    table: u32,
    destination: Option<IpAddr>,
    gateway: Option<IpAddr>,
    source: Option<IpAddr>,
    interface: Option<u32>,
    metric: u32,
}

impl Attributes {
    fn apply(&mut self, attribute: &RouteAttribute) {
        match attribute {
            RouteAttribute::Table(table) => self.table = *table,
            RouteAttribute::Destination(to) => self.destination = ip(to),
            RouteAttribute::Gateway(by) => self.gateway = ip(by),
            RouteAttribute::PrefSource(from) => self.source = ip(from),
            RouteAttribute::Oif(index) => self.interface = Some(*index),
            RouteAttribute::Priority(metric) => self.metric = *metric,
            // The kernel may take any of several next hops. In pods they are in the same subnet, so the first one will do.
            RouteAttribute::MultiPath(hops) => {
                self.interface = hops.first().map(|hop| hop.interface_index);
            }
            _ => {}
        }
    }
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some((*ip).into()),
        RouteAddress::Inet6(ip) => Some((*ip).into()),
        _ => None,
    }
}
