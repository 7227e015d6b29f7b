//! Rules about ranges of addresses as entries of a table in which only the longest prefix is found.

use super::budget::{Budget, TooMuch};
use super::rules::Peer;
use super::tables::{Gate, ROOM};
use ipnet::{IpNet, Ipv4Net};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

/// The ranges of each gate, with what their rules say.
pub(super) type Ranges<'a> = BTreeMap<Gate, Vec<(&'a Peer, u8)>>;

/// The entries for all of them.
pub(super) fn fold_all(ranges: &Ranges, budget: &mut Budget) -> Result<BTreeMap<(Gate, IpNet), u8>, TooMuch> {
    let mut entries = BTreeMap::new();
    for (gate, rules) in ranges.iter().filter(|(_, rules)| !rules.is_empty()) {
        // Each edge is compared with every range and every exception.
        let edges = most_edges(rules);
        budget.compare(edges.saturating_mul(edges))?;
        entries.extend(fold(rules).into_iter().map(|(range, said)| ((*gate, range), said)));
        if entries.len() > ROOM {
            return Err(TooMuch::Entries("policy_ranges"));
        }
    }
    Ok(entries)
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
