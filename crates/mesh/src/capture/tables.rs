//! A pod's rules in the form of the data plane's tables: scalars, sets of numbers, ranges of addresses.

use super::rules::{Dns, DnsServers, InboundPorts, OwnerGroups, Ranges, Rules, WithoutProxy};
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Mirrors `enum set_kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SetKind {
    Uid,
    Gid,
    Group,
    ExcludedPort,
    IncludedPort,
    InboundPort,
    ExcludedInterface,
    VirtualInterface,
}

/// Mirrors `enum range_kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RangeKind {
    Included,
    Excluded,
    Resolver,
    Route,
}

/// Mirrors `struct route`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteEntry {
    /// Leaves by the loopback.
    pub local: bool,
    /// Leaves by an excluded interface.
    pub excluded: bool,
    /// The errno of connect(2) for a route that leads nowhere; else 0.
    pub error: u16,
    /// The source address that the kernel takes if the program has bound none.
    pub source: IpAddr,
}

/// Mirrors `enum pod_flags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    pub pass_without_proxy: bool,
    pub all_ranges: bool,
    pub loopback_included: bool,
    pub inbound_all_but: bool,
    pub groups_all_but: bool,
    pub dns: bool,
    pub dns_all: bool,
}

/// The values of a single pod. Mirrors `struct pod`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scalars {
    pub flags: Flags,
    pub first_uid: Option<u32>,
    pub first_gid: Option<u32>,
    pub outbound_port: u16,
    pub inbound_port: u16,
    pub tunnel_port: u16,
    /// 0 without DNS.
    pub dns_port: u16,
}

/// Table entries that several pods may share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Entries {
    pub sets: BTreeSet<(SetKind, u32)>,
    pub ranges: BTreeMap<(RangeKind, IpNet), Option<RouteEntry>>,
}

impl std::hash::Hash for RouteEntry {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.local, self.excluded, self.error, self.source).hash(state);
    }
}

impl Rules {
    pub fn scalars(&self) -> Scalars {
        Scalars {
            flags: Flags {
                pass_without_proxy: self.without_proxy == WithoutProxy::Pass,
                all_ranges: self.include_outbound_ranges == Ranges::All,
                loopback_included: self.includes_loopback(),
                inbound_all_but: matches!(self.inbound_ports, InboundPorts::AllBut(_)),
                groups_all_but: matches!(self.owner_groups, OwnerGroups::AllBut(_)),
                dns: self.captured_dns().is_some(),
                dns_all: self.captured_dns().is_some_and(|dns| dns.servers == DnsServers::All),
            },
            first_uid: self.proxy_uids.first().copied(),
            first_gid: self.proxy_gids.first().copied(),
            outbound_port: self.outbound_port,
            inbound_port: self.inbound_port,
            tunnel_port: self.tunnel_port,
            dns_port: self.captured_dns().map_or(0, |dns| dns.port),
        }
    }

    /// DNS capture without a name server counts as none.
    fn captured_dns(&self) -> Option<&Dns> {
        self.dns.as_ref().filter(|dns| dns.servers != DnsServers::These(Vec::new()))
    }

    fn includes_loopback(&self) -> bool {
        match &self.include_outbound_ranges {
            Ranges::All => false,
            Ranges::These(list) => list.iter().any(|range| range.addr().is_loopback()),
        }
    }

    pub fn entries(&self) -> Entries {
        let (OwnerGroups::AllBut(groups) | OwnerGroups::Only(groups)) = &self.owner_groups;
        let (InboundPorts::AllBut(inbound) | InboundPorts::Only(inbound)) = &self.inbound_ports;
        let numbers = |kind, list: &[u32]| list.iter().map(|number| (kind, *number)).collect::<Vec<_>>();
        let ports = |kind, list: &[u16]| list.iter().map(|port| (kind, u32::from(*port))).collect::<Vec<_>>();
        let included = match &self.include_outbound_ranges {
            Ranges::All => &[][..],
            Ranges::These(list) => list,
        };
        let resolvers: Vec<IpNet> = match self.dns.as_ref().map(|dns| &dns.servers) {
            Some(DnsServers::These(list)) => list.iter().map(|ip| IpNet::from(*ip)).collect(),
            _ => Vec::new(),
        };
        let ranges = [
            (RangeKind::Included, included),
            (RangeKind::Excluded, &self.exclude_outbound_ranges),
            (RangeKind::Resolver, &resolvers),
        ];
        let sets = [
            numbers(SetKind::Uid, &self.proxy_uids),
            numbers(SetKind::Gid, &self.proxy_gids),
            numbers(SetKind::Group, groups),
            ports(SetKind::ExcludedPort, &self.exclude_outbound_ports),
            ports(SetKind::IncludedPort, &self.include_outbound_ports),
            ports(SetKind::InboundPort, inbound),
        ];
        Entries {
            sets: sets.into_iter().flatten().collect(),
            ranges: ranges
                .into_iter()
                .flat_map(|(kind, list)| list.iter().map(move |range| ((kind, range.trunc()), None)))
                .collect(),
        }
    }
}

/// The interfaces, addresses and routes of a pod's network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodNetwork {
    /// Numbers of its interfaces, by name.
    pub interfaces: BTreeMap<String, u32>,
    pub addresses: BTreeSet<IpAddr>,
    /// Broadcast addresses of its networks.
    pub broadcasts: BTreeSet<IpAddr>,
    pub routes: Vec<(IpNet, Route)>,
}

/// Where a route leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// To this namespace itself.
    Local {
        source: IpAddr,
    },
    By {
        interface: u32,
        source: IpAddr,
    },
    /// `error` is the errno of connect(2).
    Nowhere {
        error: u16,
    },
}

impl PodNetwork {
    /// A pod's rules name interfaces; the tables number them. An interface that does not exist (yet) is left out.
    pub fn entries(&self, rules: &Rules) -> Entries {
        let numbers = |kind, names: &[String]| {
            names.iter().filter_map(|name| Some((kind, *self.interfaces.get(name)?))).collect::<BTreeSet<_>>()
        };
        let excluded = numbers(SetKind::ExcludedInterface, &rules.exclude_interfaces);
        let is_excluded = |interface| excluded.contains(&(SetKind::ExcludedInterface, interface));
        let lo = self.interfaces.get("lo").copied().unwrap_or(1);
        let nowhere =
            |net: IpNet| if net.addr().is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let entry = |net: IpNet, route: Route| match route {
            Route::Local { source } => RouteEntry { local: true, excluded: is_excluded(lo), error: 0, source },
            Route::By { interface, source } => {
                RouteEntry { local: interface == lo, excluded: is_excluded(interface), error: 0, source }
            }
            Route::Nowhere { error } => RouteEntry { local: false, excluded: false, error, source: nowhere(net) },
        };
        let ranges = self
            .routes
            .iter()
            .map(|(net, route)| ((RangeKind::Route, net.trunc()), Some(entry(*net, *route))))
            .collect();
        let mut sets = numbers(SetKind::VirtualInterface, &rules.virtual_interfaces);
        sets.extend(excluded);
        Entries { sets, ranges }
    }
}
