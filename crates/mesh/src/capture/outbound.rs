//! The rules for what a socket of the pod sends: TCP connections, and datagrams for DNS.

use super::rules::{Dns, DnsServers, OwnerGroups, Ranges, Rules};
use super::verdict::{Action, Rule, Verdict};
use crate::address::Protocol;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outbound<'a> {
    pub protocol: Protocol,
    /// As the program has it: `::ffff:a.b.c.d` is IPv4, and an unspecified address is loopback.
    pub destination: SocketAddr,
    /// What the socket is bound to. None: the kernel is still to choose.
    pub source: Option<IpAddr>,
    /// By which it leaves: `lo` for all addresses of the pod itself.
    pub interface: &'a str,
    /// Of the socket's file, not of whoever uses it. [`NOBODY`] where it has none.
    pub uid: u32,
    pub gid: u32,
}

/// In no list of users or groups.
pub const NOBODY: u32 = u32::MAX;

const DNS_PORT: u16 = 53;
/// From which the proxy calls the programs of its own pod.
const PASSTHROUGH: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(127, 0, 0, 6)), IpAddr::V6(Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6))];
/// At which programs of a pod mean each other.
const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

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

/// The probe beside the rules, and what several rules ask of both.
struct Facts<'a> {
    rules: &'a Rules,
    probe: &'a Outbound<'a>,
    ip: IpAddr,
    source: Option<IpAddr>,
    port: u16,
    is_tcp: bool,
    is_local: bool,
    /// None where no server would match: then the rules for others are those without DNS, too.
    dns: Option<&'a Dns>,
    /// Whoever includes a loopback range wants calls within the pod captured.
    includes_loopback: bool,
}

/// The proxy, as a user or as a group.
struct Owner {
    is_sender: bool,
    /// a, b and c of the rules for it.
    rules: [Rule; 3],
    /// Under DNS capture, its calls to port 53 of its own pod go where they are meant to.
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

    /// 1, 2 and 3
    fn excluded(&self) -> Matched {
        // Who dials ::6 does so from there, if the program has chosen nothing else.
        let source = self.source.or(Some(self.ip).filter(IpAddr::is_ipv6));
        let is_excluded = self.rules.exclude_interfaces.iter().any(|name| name == self.probe.interface);
        let is_passthrough = self.is_local && source.is_some_and(|ip| PASSTHROUGH.contains(&ip));
        bypass(Rule::OutputInterface, is_excluded)
            .or(bypass(Rule::OutputExcludedPort, self.rules.exclude_outbound_ports.contains(&self.port)))
            .or(bypass(Rule::OutputPassthrough, is_passthrough))
    }

    /// 4 and 5: one owner after the other, so that with several of them each is one of the others' others.
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

    /// At an address of the pod that others call too: they find the proxy there, so it does as well.
    fn is_to_itself(&self, owner: &Owner) -> bool {
        let is_left = owner.leaves_dns && self.dns.is_some() && self.port == DNS_PORT;
        let is_meant = self.is_local && !LOOPBACK.contains(&self.ip);
        self.is_tcp && is_meant && self.port != self.rules.tunnel_port && !is_left
    }

    /// A name server may be within the pod, so rule 7 is to see these. Of UDP it sees everything.
    fn may_be_dns(&self) -> bool {
        self.dns.is_some() && (!self.is_tcp || self.port == DNS_PORT)
    }

    /// 6
    fn owner_group(&self) -> Matched {
        let is_left = match &self.rules.owner_groups {
            OwnerGroups::AllBut(groups) => groups.contains(&self.probe.gid),
            OwnerGroups::Only(groups) => !groups.contains(&self.probe.gid),
        };
        bypass(Rule::OutputOwnerGroup, is_left)
    }

    /// 7
    fn dns(&self) -> Matched {
        let dns = self.dns.filter(|_| self.port == DNS_PORT)?;
        let is_server = match &dns.servers {
            DnsServers::All => true,
            DnsServers::These(servers) => servers.contains(&self.ip),
        };
        is_server.then_some((Rule::OutputDns, Action::Dns(dns.port)))
    }

    /// 8 to 11. Of UDP nothing but DNS is captured.
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

/// Whoever connects to 0.0.0.0 reaches its own address, whoever connects to :: the loopback: packets never have them.
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

/// Explicitly: 0.0.0.0/0 does not, 127.0.0.0/8 does. In either family, for both.
fn includes_loopback(ranges: &Ranges) -> bool {
    match ranges {
        Ranges::All => false,
        Ranges::These(ranges) => ranges.iter().any(|range| range.addr().is_loopback()),
    }
}
