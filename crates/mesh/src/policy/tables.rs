//! Policies as entries of the data plane's tables. Mirrors crates/bpf/src/policy.h.

use super::budget::TooMuch;
use super::identity;
use super::rules::{BySide, Direction};
use crate::address::Protocol;
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::IpAddr;

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
    /// Why there are no entries though the policies ask for some.
    pub too_much: Option<TooMuch>,
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

impl Compiled {
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
