//! The rules for what a socket of the pod sends: TCP connections, and datagrams for DNS.

use super::rules::{Dns, DnsServers, OwnerGroups, Ranges, Rules};
use super::verdict::{Action, Rule, Verdict};
use crate::address::Protocol;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A TCP connection, a connected UDP socket or a single datagram that a program of the pod sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outbound<'a> {
    /// UDP is captured only as DNS.
    pub protocol: Protocol,
    /// The address that the program dials; `::ffff:a.b.c.d` is IPv4, and an unspecified address means loopback.
    pub destination: SocketAddr,
    /// The address that the socket is bound to. None: the kernel will choose.
    pub source: Option<IpAddr>,
    /// The outgoing interface; `lo` for all addresses of the pod itself.
    pub interface: &'a str,
    /// Owner of the socket's file, not of the process that uses it. [`NOBODY`] if the socket has no file.
    pub uid: u32,
    /// As `uid`, for the group.
    pub gid: u32,
}

/// The owner of a socket without a file; it is in no list of users or groups.
pub const NOBODY: u32 = u32::MAX;

const DNS_PORT: u16 = 53;
/// From which addresses the proxy calls programs of its own pod.
const PASSTHROUGH: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(127, 0, 0, 6)), IpAddr::V6(Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6))];
/// The addresses at which programs of a pod call each other.
const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// Applies the lines OUTPUT 1 to 11 of the [table](super).
pub fn verdict(rules: &Rules, probe: &Outbound) -> Verdict {
    let facts = Facts::new(rules, probe);
    let (rule, action) = facts
        .excluded()
        .or_else(|| facts.owners())
        .or_else(|| facts.owner_group())
        .or_else(|| facts.dns())
        .or_else(|| facts.destination())
        .unwrap_or((Rule::OutputNone, Action::Bypass));
    Verdict { action, rule }
}

type Matched = Option<(Rule, Action)>;

fn bypass(rule: Rule, matches: bool) -> Matched {
    matches.then_some((rule, Action::Bypass))
}

/// A probe and the rules, with facts that several rules need.
struct Facts<'a> {
    rules: &'a Rules,
    probe: &'a Outbound<'a>,
    ip: IpAddr,
    source: Option<IpAddr>,
    port: u16,
    is_tcp: bool,
    is_local: bool,
    /// None also if there is no name server: the other rules are then those without DNS, too.
    dns: Option<&'a Dns>,
    /// Whether a loopback range is included: then calls within the pod are captured.
    includes_loopback: bool,
}

/// The proxy, by a user or by a group.
struct Owner {
    is_sender: bool,
    /// The rule's lines a, b and c.
    rules: [Rule; 3],
    /// With DNS capture, the proxy's calls to port 53 of its own pod are not captured.
    leaves_dns: bool,
}

impl<'a> Facts<'a> {
    fn new(rules: &'a Rules, probe: &'a Outbound<'a>) -> Facts<'a> {
        let source = probe.source.map(|ip| ip.to_canonical());
        Facts {
            rules,
            probe,
            ip: meant(probe.destination.ip().to_canonical(), source),
            source,
            port: probe.destination.port(),
            is_tcp: probe.protocol == Protocol::Tcp,
            is_local: probe.interface == "lo",
            dns: rules.dns.as_ref().filter(|dns| dns.servers != DnsServers::These(Vec::new())),
            includes_loopback: includes_loopback(&rules.include_outbound_ranges),
        }
    }

    /// Lines 1, 2 and 3.
    fn excluded(&self) -> Matched {
        // A program that dials ::6 and has bound nothing has ::6 as its source.
        let source = self.source.or(Some(self.ip).filter(IpAddr::is_ipv6));
        let is_excluded = self.rules.exclude_interfaces.iter().any(|name| name == self.probe.interface);
        let is_passthrough = self.is_local && source.is_some_and(|ip| PASSTHROUGH.contains(&ip));
        bypass(Rule::OutputInterface, is_excluded)
            .or(bypass(Rule::OutputExcludedPort, self.rules.exclude_outbound_ports.contains(&self.port)))
            .or(bypass(Rule::OutputPassthrough, is_passthrough))
    }

    /// Lines 4 and 5, for one owner after the other. With several owners, each is "not this user" for the others.
    fn owners(&self) -> Matched {
        let users = self.rules.proxy_uids.iter().map(|uid| Owner {
            is_sender: self.probe.uid == *uid,
            rules: [Rule::OutputUserToItself, Rule::OutputOtherUser, Rule::OutputUser],
            leaves_dns: true,
        });
        let groups = self.rules.proxy_gids.iter().map(|gid| Owner {
            is_sender: self.probe.gid == *gid,
            rules: [Rule::OutputGroupToItself, Rule::OutputOtherGroup, Rule::OutputGroup],
            leaves_dns: false,
        });
        users.chain(groups).find_map(|owner| self.owner(&owner))
    }

    fn owner(&self, owner: &Owner) -> Matched {
        let [to_itself, of_others, of_proxy] = owner.rules;
        if owner.is_sender {
            let captured = (to_itself, Action::Inbound(self.rules.inbound_port));
            let proxys = (of_proxy, Action::Bypass);
            return Some(if self.is_to_itself(owner) { captured } else { proxys });
        }
        bypass(of_others, self.is_local && !self.includes_loopback && !self.may_be_dns())
    }

    /// Whether the proxy calls an address of its own pod at which other pods find the proxy: then it gets the proxy as well.
    fn is_to_itself(&self, owner: &Owner) -> bool {
        let is_left = owner.leaves_dns && self.dns.is_some() && self.port == DNS_PORT;
        let is_meant = self.is_local && !LOOPBACK.contains(&self.ip);
        self.is_tcp && is_meant && self.port != self.rules.tunnel_port && !is_left
    }

    /// Whether rule 7 must see the connection, since a name server may be within the pod. It sees all UDP.
    fn may_be_dns(&self) -> bool {
        self.dns.is_some() && (!self.is_tcp || self.port == DNS_PORT)
    }

    /// Line 6.
    fn owner_group(&self) -> Matched {
        let is_left = match &self.rules.owner_groups {
            OwnerGroups::AllBut(groups) => groups.contains(&self.probe.gid),
            OwnerGroups::Only(groups) => !groups.contains(&self.probe.gid),
        };
        bypass(Rule::OutputOwnerGroup, is_left)
    }

    /// Line 7.
    fn dns(&self) -> Matched {
        let dns = self.dns.filter(|_| self.port == DNS_PORT)?;
        let is_server = match &dns.servers {
            DnsServers::All => true,
            DnsServers::These(servers) => servers.contains(&self.ip),
        };
        is_server.then_some((Rule::OutputDns, Action::Dns(dns.port)))
    }

    /// Lines 8 to 11. Of UDP only DNS is captured.
    fn destination(&self) -> Matched {
        let (rules, ip) = (self.rules, &self.ip);
        let captured =
            |rule, matches: bool| (self.is_tcp && matches).then_some((rule, Action::Outbound(rules.outbound_port)));
        let is_included = match &rules.include_outbound_ranges {
            Ranges::All => true,
            Ranges::These(ranges) => ranges.iter().any(|range| range.contains(ip)),
        };
        let is_excluded = rules.exclude_outbound_ranges.iter().any(|range| range.contains(ip));
        bypass(Rule::OutputLoopback, LOOPBACK.contains(ip))
            .or(bypass(Rule::OutputExcludedRange, is_excluded))
            .or(captured(Rule::OutputIncludedPort, rules.include_outbound_ports.contains(&self.port)))
            .or(captured(Rule::OutputIncludedRange, is_included))
    }
}

/// The address that connect() means by 0.0.0.0 (the socket's own address) and by :: (the loopback): packets have neither.
fn meant(ip: IpAddr, source: Option<IpAddr>) -> IpAddr {
    match (ip, source) {
        (IpAddr::V4(Ipv4Addr::UNSPECIFIED), Some(IpAddr::V4(own))) => own.into(),
        (IpAddr::V4(Ipv4Addr::UNSPECIFIED), _) | (IpAddr::V6(Ipv6Addr::UNSPECIFIED), Some(IpAddr::V4(_))) => {
            Ipv4Addr::LOCALHOST.into()
        }
        (IpAddr::V6(Ipv6Addr::UNSPECIFIED), _) => Ipv6Addr::LOCALHOST.into(),
        (other, _) => other,
    }
}

/// Whether a loopback range is included explicitly: 127.0.0.0/8 is, 0.0.0.0/0 is not. One in either family counts for both.
fn includes_loopback(ranges: &Ranges) -> bool {
    match ranges {
        Ranges::All => false,
        Ranges::These(ranges) => ranges.iter().any(|range| range.addr().is_loopback()),
    }
}
