//! Policies as entries of the data plane's tables. Mirrors crates/bpf/src/policy.h.

use super::identity::{self, Identities, Identity};
use super::rules::{Action, BySide, Direction, NamedPorts, OnDeny, Peer, Policy, Ports, Rule};
use crate::address::Protocol;
use ipnet::{IpNet, Ipv4Net};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

/// A rule that allows, of a policy in force. This and the following bits mirror `enum said`.
pub const SAYS_ALLOW: u8 = 1 << 0;
/// A rule or default that denies, of a policy in force.
pub const SAYS_DENY: u8 = 1 << 1;
/// With [`SAYS_DENY`]: silently, instead of a refusal.
pub const SAYS_DROP: u8 = 1 << 2;
/// A rule that allows, of a policy in dry run.
pub const DRY_ALLOW: u8 = 1 << 3;
/// A rule that denies, of a policy in dry run; in defaults also one of a policy in force.
pub const DRY_DENY: u8 = 1 << 4;
/// In defaults: some policy concerns this direction. Without it no tables are read.
pub const ISOLATED: u8 = 1 << 5;
/// In defaults: some rule names ranges of addresses. Without it they are not looked up.
pub const HAS_RANGES: u8 = 1 << 6;
/// In defaults: some rule in force denies by the peer's identity, which a shared address could hide.
pub const NAMES_DENIED: u16 = 1 << 7;
/// In defaults: the same for policies in dry run.
pub const DRY_NAMES_DENIED: u16 = 1 << 8;

/// The table contents for the policies that select a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compiled {
    /// The bits that apply if no entry says anything, and what has to be looked up. 0: no policy concerns this direction.
    pub defaults: BySide<u16>,
    /// For both directions.
    pub entries: Entries,
}

/// Table entries; pods with equal ones share them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Entries {
    /// The bits of all rules with the same key. Rules about ranges are not among them.
    pub rules: BTreeMap<RuleKey, u8>,
    /// The bits of all ranges that contain this one, since the programs find only the longest prefix.
    pub ranges: BTreeMap<(Gate, IpNet), u8>,
    /// The table that has not room for all, or whose entries take too long to work out. There are no entries then.
    pub too_many_for: Option<&'static str>,
}

/// Mirrors `struct rule_key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleKey {
    /// Which connections the entry is about, whoever the peer is.
    pub gate: Gate,
    /// 0: anybody.
    pub identity: u32,
}

/// The part of a rule's key that does not name the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gate {
    /// As seen by the pod.
    pub direction: Direction,
    /// None: all protocols but TCP and UDP.
    pub protocol: Option<Protocol>,
    /// 0: any.
    pub port: u16,
}

/// Entries of `policy_rules`, and of `policy_ranges`, for all pods of a node. Mirrors crates/bpf/src/policy_maps.h.
pub const ROOM: usize = 1 << 20;
/// Entries that are worked out for one pod, those of several rules counted several times: anybody may write policies, so what would
/// be far too much for the tables is not worked out just to find that.
const MOST_EXPANDED: usize = 4 * ROOM;
/// Comparisons of identities with the peers that rules name, for one pod: rules that match nobody have no entries, but cost time.
const MOST_LOOKS: usize = 1 << 26;
/// Comparisons of ranges with each other, for one pod.
const MOST_COMPARED: usize = 1 << 29;

/// Compiles policies for the identities that are known. `own_ports`: of the pods that the policies select.
pub fn compile(policies: &[&Policy], known: &Identities, own_ports: &NamedPorts) -> Compiled {
    let mut compiled = Compiled::default();
    let mut ranges: BTreeMap<Gate, Vec<(&Peer, u8)>> = BTreeMap::new();
    let (mut left, mut looks) = (MOST_EXPANDED, MOST_LOOKS);
    for direction in Direction::BOTH {
        for policy in policies.iter().filter(|policy| policy.concerns(direction)) {
            *compiled.defaults.at_mut(direction) |= defaults(policy, direction);
            for rule in policy.rules.at(direction) {
                if compiled.entries.too_many_for.is_some() {
                    break;
                }
                let Some(rest) = looks.checked_sub(most_looks(rule, direction, known)) else {
                    compiled.too_many("policy_rules");
                    break;
                };
                looks = rest;
                let said = said(rule.action, policy);
                let numbers = numbers(rule, known);
                let its: Vec<&Peer> = rule.peers.iter().filter(|peer| matches!(peer, Peer::Range { .. })).collect();
                let Some(rest) = left.checked_sub(most_gates(rule).saturating_mul(numbers.len() + its.len())) else {
                    compiled.too_many(if its.is_empty() { "policy_rules" } else { "policy_ranges" });
                    break;
                };
                left = rest;
                for (gate, identity) in dialled_by_name(rule, direction, known) {
                    *compiled.entries.rules.entry(RuleKey { gate, identity }).or_default() |= said;
                }
                for gate in gates(rule, direction, own_ports) {
                    numbers.iter().for_each(|&identity| {
                        *compiled.entries.rules.entry(RuleKey { gate, identity }).or_default() |= said;
                    });
                    ranges.entry(gate).or_default().extend(its.iter().map(|peer| (*peer, said)));
                }
            }
        }
    }
    if compiled.entries.rules.len() > ROOM {
        compiled.too_many("policy_rules");
    }
    if compiled.entries.too_many_for.is_none() {
        compiled.fold_all(&ranges);
    }
    compiled
}

fn said(action: Action, policy: &Policy) -> u8 {
    match (action, policy.dry_run, policy.on_deny) {
        (Action::Allow, false, _) => SAYS_ALLOW,
        (Action::Allow, true, _) => DRY_ALLOW,
        (Action::Deny, true, _) => DRY_DENY,
        (Action::Deny, false, OnDeny::Refuse) => SAYS_DENY,
        (Action::Deny, false, OnDeny::Drop) => SAYS_DENY | SAYS_DROP,
    }
}

/// A policy in force also denies in the dry run, which assumes that all policies are in force.
fn defaults(policy: &Policy, direction: Direction) -> u16 {
    let by_default = match policy.default_of(direction) {
        Action::Allow => ISOLATED,
        Action::Deny => ISOLATED | DRY_DENY | said(Action::Deny, policy),
    };
    let by_name = match policy.denies_by_name(direction) {
        false => 0,
        true if policy.dry_run => DRY_NAMES_DENIED,
        true => NAMES_DENIED,
    };
    u16::from(by_default) | by_name
}

/// At least as many as there are [`gates`].
fn most_gates(rule: &Rule) -> usize {
    let count =
        |ports: &Ports| if ports.are_all() { 1 } else { usize::from(ports.last.saturating_sub(ports.first)) + 1 };
    3 + rule.named.len() + rule.ports.iter().map(count).sum::<usize>()
}

/// At least as many comparisons as [`numbers`] and [`dialled_by_name`] make.
fn most_looks(rule: &Rule, direction: Direction, known: &Identities) -> usize {
    let pods = rule.peers.iter().filter(|peer| matches!(peer, Peer::Pods(_))).count();
    let named = if direction == Direction::Egress { rule.named.len() } else { 0 };
    let for_each = pods.saturating_add(named.saturating_mul(rule.peers.len().max(1)));
    for_each.saturating_mul(known.len().max(1))
}

/// Named ports of the selected pods are numbers here. Those of peers differ from one peer to the other: see
/// [`dialled_by_name`].
fn gates(rule: &Rule, direction: Direction, own_ports: &NamedPorts) -> Vec<Gate> {
    if rule.ports.is_empty() && rule.named.is_empty() {
        let every = [Some(Protocol::Tcp), Some(Protocol::Udp), None];
        return every.map(|protocol| Gate { direction, protocol, port: 0 }).into();
    }
    let numbers = |ports: &Ports| if ports.are_all() { 0..=0 } else { ports.first..=ports.last };
    let gate = |protocol, port| Gate { direction, protocol: Some(protocol), port };
    let numbered = rule.ports.iter().flat_map(|ports| numbers(ports).map(move |port| gate(ports.protocol, port)));
    let named = rule.named.iter().filter(|_| direction == Direction::Ingress).filter_map(|port| {
        let number = own_ports.get(&(port.name.clone(), port.protocol))?;
        Some(gate(port.protocol, *number))
    });
    numbered.chain(named).collect()
}

/// Outbound: each identity that the rule names, with the numbers that the rule's named ports have there.
fn dialled_by_name<'a>(
    rule: &'a Rule,
    direction: Direction,
    known: &'a Identities,
) -> impl Iterator<Item = (Gate, u32)> + 'a {
    let named = rule.named.iter().filter(move |_| direction == Direction::Egress);
    named.flat_map(move |port| {
        let peers = known.iter().filter(move |(who, _)| rule.peers.is_empty() || is_among(who, &rule.peers));
        peers.filter_map(move |(who, identity)| {
            let number = who.ports.get(&(port.name.clone(), port.protocol))?;
            Some((Gate { direction, protocol: Some(port.protocol), port: *number }, identity))
        })
    })
}

fn is_among(who: &Identity, peers: &[Peer]) -> bool {
    peers.iter().any(|peer| matches!(peer, Peer::Pods(pods) if who.is_one_of(pods)))
}

/// Numbers of all identities that the rule names; ranges are not among them.
fn numbers(rule: &Rule, known: &Identities) -> BTreeSet<u32> {
    if rule.peers.is_empty() {
        return BTreeSet::from([identity::UNKNOWN]);
    }
    let of = |peer: &Peer| -> Vec<u32> {
        match peer {
            Peer::Pods(pods) => known.iter().filter(|(who, _)| who.is_one_of(pods)).map(|(_, n)| n).collect(),
            Peer::Node => vec![identity::NODE],
            Peer::Range { .. } => Vec::new(),
        }
    };
    // One peer at a time: to collect at once would list the numbers of all peers first, however often the same ones come.
    let mut all = BTreeSet::new();
    rule.peers.iter().for_each(|peer| all.extend(of(peer)));
    all
}

/// For every range, and every exception inside one, the bits of all ranges around it, since only the longest prefix is found.
/// IPv4 addresses lie inside IPv6's ::ffff:0:0/96, so an IPv6 range that contains them gets an entry of its own for IPv4.
fn fold(rules: &[(&Peer, u8)]) -> BTreeMap<IpNet, u8> {
    let mut edges: BTreeSet<IpNet> = BTreeSet::new();
    for (peer, _) in rules {
        let Peer::Range { range, except } = peer else { continue };
        edges.extend(except.iter().chain([range]).map(IpNet::trunc));
    }
    if edges.iter().any(holds_mapped) {
        edges.insert(IPV4);
    }
    let said = |edge: &IpNet| rules.iter().filter(|(peer, _)| holds(peer, edge)).fold(0, |all, (_, said)| all | said);
    edges.iter().map(|edge| (*edge, said(edge))).collect()
}

fn most_edges(rules: &[(&Peer, u8)]) -> usize {
    let edges = |peer: &Peer| if let Peer::Range { except, .. } = peer { 1 + except.len() } else { 0 };
    1 + rules.iter().map(|(peer, _)| edges(peer)).sum::<usize>()
}

const IPV4: IpNet = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0));

fn holds_mapped(range: &IpNet) -> bool {
    range.contains(&IpAddr::V6(Ipv4Addr::UNSPECIFIED.to_ipv6_mapped()))
}

fn holds(peer: &Peer, edge: &IpNet) -> bool {
    match peer {
        Peer::Range { range, except } => range.contains(edge) && !except.iter().any(|hole| hole.contains(edge)),
        _ => false,
    }
}

impl Compiled {
    fn too_many(&mut self, table: &'static str) {
        self.entries = Entries { too_many_for: Some(table), ..Entries::default() };
    }

    fn fold_all(&mut self, ranges: &BTreeMap<Gate, Vec<(&Peer, u8)>>) {
        let mut left = MOST_COMPARED;
        for (gate, rules) in ranges.iter().filter(|(_, rules)| !rules.is_empty()) {
            let Some(rest) = left.checked_sub(rules.len().saturating_mul(most_edges(rules))) else {
                return self.too_many("policy_ranges");
            };
            left = rest;
            *self.defaults.at_mut(gate.direction) |= u16::from(HAS_RANGES);
            self.entries.ranges.extend(fold(rules).into_iter().map(|(range, said)| ((*gate, range), said)));
            if self.entries.ranges.len() > ROOM {
                return self.too_many("policy_ranges");
            }
        }
    }

    /// Looks the entries up as the programs do.
    pub fn said(&self, gate: Gate, identity: u32, peer: IpAddr) -> u8 {
        let any = Gate { port: 0, ..gate };
        let rule = |gate, identity| self.entries.rules.get(&RuleKey { gate, identity }).copied().unwrap_or(0);
        rule(gate, identity)
            | rule(any, identity)
            | rule(gate, identity::UNKNOWN)
            | rule(any, identity::UNKNOWN)
            | self.said_of_range(gate, peer)
            | self.said_of_range(any, peer)
    }

    /// Looks up the longest prefix.
    fn said_of_range(&self, gate: Gate, peer: IpAddr) -> u8 {
        let peer = peer.to_canonical();
        let ranges = self.entries.ranges.iter().filter(|((of, range), _)| *of == gate && range.contains(&peer));
        ranges.max_by_key(|((_, range), _)| range.prefix_len()).map_or(0, |(_, said)| *said)
    }
}
