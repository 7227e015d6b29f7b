//! A pod's rules in the form of the data plane's tables: scalars, sets of numbers, ranges of addresses.

use super::rules::{Dns, DnsServers, InboundPorts, OwnerGroups, Ranges, Rules, WithoutProxy};
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Mirrors `enum set_kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SetKind {
    /// Users of the proxy.
    Uid,
    /// Groups of the proxy.
    Gid,
    /// Groups that are not captured, with [`Flags::groups_all_but`]; else those that are.
    Group,
    /// excludeOutboundPorts
    ExcludedPort,
    /// includeOutboundPorts
    IncludedPort,
    /// Ports of the pod that are not captured, with [`Flags::inbound_all_but`]; else those that are.
    InboundPort,
    /// Numbers of interfaces. They depend on the network namespace, unlike all of the above.
    ExcludedInterface,
    /// Numbers of interfaces, likewise.
    VirtualInterface,
}

/// Mirrors `enum range_kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RangeKind {
    /// includeOutboundIPRanges, unless it is `*`.
    Included,
    /// excludeOutboundIPRanges
    Excluded,
    /// Name servers whose queries are captured, unless all are.
    Resolver,
    /// Routes of the network namespace; the only kind that has a value.
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
    /// [`WithoutProxy::Pass`]
    pub pass_without_proxy: bool,
    /// includeOutboundIPRanges is `*`.
    pub all_ranges: bool,
    /// includeOutboundIPRanges names a loopback range.
    pub loopback_included: bool,
    /// Says what [`SetKind::InboundPort`] lists.
    pub inbound_all_but: bool,
    /// Says what [`SetKind::Group`] lists.
    pub groups_all_but: bool,
    /// DNS is captured.
    pub dns: bool,
    /// DNS to any server is captured; else only to those of [`RangeKind::Resolver`]. Only with `dns`.
    pub dns_all: bool,
}

/// The values of a single pod. Mirrors `struct pod`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scalars {
    /// Which of the tables count, and what they list.
    pub flags: Flags,
    /// The proxy's first user: the only one that line OUTPUT 4b tests, as all others are "not this user". None: no users.
    pub first_uid: Option<u32>,
    /// Likewise the proxy's first group.
    pub first_gid: Option<u32>,
    /// In host order, as all ports here.
    pub outbound_port: u16,
    /// As [`Rules::inbound_port`].
    pub inbound_port: u16,
    /// As [`Rules::tunnel_port`].
    pub tunnel_port: u16,
    /// 0 without DNS.
    pub dns_port: u16,
}

/// Table entries that several pods may share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Entries {
    /// Uids, gids, ports or interface numbers, by kind.
    pub sets: BTreeSet<(SetKind, u32)>,
    /// The value is None except for [`RangeKind::Route`].
    pub ranges: BTreeMap<(RangeKind, IpNet), Option<RouteEntry>>,
}

impl std::hash::Hash for RouteEntry {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.local, self.excluded, self.error, self.source).hash(state);
    }
}

impl Rules {
    /// The part of the rules that is stored with the pod itself.
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

    /// The part of the rules that pods with equal rules share. Interfaces are missing: see [`PodNetwork::entries`].
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
    /// Addresses of all its interfaces, the loopback's too.
    pub addresses: BTreeSet<IpAddr>,
    /// Broadcast addresses of its networks.
    pub broadcasts: BTreeSet<IpAddr>,
    /// By destination, one for each: of several the one that the kernel prefers, by table and metric.
    pub routes: Vec<(IpNet, Route)>,
}

/// Where a route leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// To this namespace itself.
    Local {
        /// The source address that the kernel takes if the program has bound none.
        source: IpAddr,
    },
    /// To another host, directly or by a gateway.
    By {
        /// Number of the outgoing interface.
        interface: u32,
        /// As for `Local`.
        source: IpAddr,
    },
    /// `error` is the errno of connect(2).
    Nowhere {
        /// Such as EHOSTUNREACH for an unreachable route.
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
