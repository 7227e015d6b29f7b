//! What becomes of a connection.

use super::identity::Identity;
use super::rules::{Action, Direction, OnDeny, Peer, Policy, Rule};
use crate::address::Protocol;
use crate::object::Name;
use std::net::IpAddr;

/// A connection of a pod, beside those that stay inside.
#[derive(Clone, Copy, Debug)]
pub struct Connection<'a> {
    pub direction: Direction,
    /// Where the other end is: after a Service's address was exchanged for a backend's.
    pub peer: IpAddr,
    pub who: Who<'a>,
    /// None: neither TCP nor UDP. Rules that name ports are not about it.
    pub protocol: Option<Protocol>,
    /// That was dialled.
    pub port: u16,
}

/// The other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who<'a> {
    Pod(&'a Identity),
    Node,
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    pub outcome: Outcome,
    /// It is allowed, but would not be if the policies that only count were in force.
    pub would_be_denied: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Allowed,
    Denied(OnDeny),
}

/// Whether many hosts have this address, or another one at each link: a group, a broadcast, a link-local address of IPv6. A
/// pod's network has broadcast addresses besides, which its namespace knows.
pub fn is_shared(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_multicast() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_multicast() || v6.is_unicast_link_local(),
    }
}

/// By the policies that select the pod.
pub fn judge(policies: &[&Policy], connection: &Connection) -> Judgement {
    let in_force: Vec<&Policy> = policies.iter().copied().filter(|policy| !policy.dry_run).collect();
    let outcome = outcome(&in_force, connection);
    let would_be_denied = outcome == Outcome::Allowed && self::outcome(policies, connection) != Outcome::Allowed;
    Judgement { outcome, would_be_denied }
}

fn outcome(policies: &[&Policy], connection: &Connection) -> Outcome {
    // The node's probes and its agents keep the pod alive.
    if connection.direction == Direction::Ingress && connection.who == Who::Node {
        return Outcome::Allowed;
    }
    let fits = |policy: &&&Policy, action| {
        let rules = policy.rules.at(connection.direction).iter();
        rules.filter(|rule| rule.action == action).any(|rule| rule.fits(connection))
    };
    let denying: Vec<_> = policies.iter().filter(|policy| fits(policy, Action::Deny)).collect();
    let is_allowed = policies.iter().any(|policy| fits(&policy, Action::Allow));
    let by_default = policies.iter().filter(|policy| policy.default_of(connection.direction) == Action::Deny);
    if !denying.is_empty() {
        return denied_by(denying.into_iter().copied());
    }
    if is_allowed {
        return Outcome::Allowed;
    }
    match denied_by(by_default.copied()) {
        Outcome::Allowed if hides_denied(policies, connection) => Outcome::Denied(OnDeny::Refuse),
        outcome => outcome,
    }
}

/// Whether one whom a rule denies by who it is could be behind an address that is not one host's alone.
fn hides_denied(policies: &[&Policy], connection: &Connection) -> bool {
    let is_unknown = connection.who == Who::Unknown && is_shared(connection.peer);
    is_unknown && policies.iter().any(|policy| policy.denies_by_name(connection.direction))
}

/// Where one of them wants silence there is silence. By nobody: allowed.
fn denied_by<'a>(policies: impl Iterator<Item = &'a Policy>) -> Outcome {
    let wishes: Vec<OnDeny> = policies.map(|policy| policy.on_deny).collect();
    match wishes.contains(&OnDeny::Drop) {
        _ if wishes.is_empty() => Outcome::Allowed,
        true => Outcome::Denied(OnDeny::Drop),
        false => Outcome::Denied(OnDeny::Refuse),
    }
}

impl Rule {
    pub fn fits(&self, connection: &Connection) -> bool {
        let port = |ports: &super::rules::Ports| {
            connection.protocol.is_some_and(|protocol| ports.contains(protocol, connection.port))
        };
        (self.peers.is_empty() || self.peers.iter().any(|peer| peer.is(connection)))
            && (self.ports.is_empty() || self.ports.iter().any(port))
    }
}

impl Peer {
    fn is(&self, connection: &Connection) -> bool {
        let ip = connection.peer.to_canonical();
        match (self, connection.who) {
            (Peer::Pods(pods), Who::Pod(identity)) => identity.is_one_of(pods),
            (Peer::Pods(_), _) => false,
            (Peer::Range { range, except }, _) => {
                range.contains(&ip) && !except.iter().any(|range| range.contains(&ip))
            }
            (Peer::Node, who) => who == Who::Node,
        }
    }
}

/// A rule that fits a connection, or a default that it meets: for whoever asks why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit<'a> {
    pub policy: &'a Name,
    /// Its place in the policy's list, from 0. None: the policy's default.
    pub rule: Option<usize>,
    pub action: Action,
    /// It is only counted.
    pub dry_run: bool,
}

/// Everything that has a say. A default has one only where no rule of any policy fits.
pub fn fitting<'a>(policies: &[&'a Policy], connection: &Connection) -> Vec<Fit<'a>> {
    let direction = connection.direction;
    let fit = |policy: &'a Policy, rule, action| Fit { policy: &policy.name, rule, action, dry_run: policy.dry_run };
    let rules = policies.iter().flat_map(|policy| {
        let numbered = policy.rules.at(direction).iter().enumerate();
        let fitting = numbered.filter(|(_, rule)| rule.fits(connection));
        fitting.map(move |(place, rule)| fit(policy, Some(place), rule.action))
    });
    let rules: Vec<Fit> = rules.collect();
    if !rules.is_empty() {
        return rules;
    }
    let concerned = policies.iter().filter(|policy| policy.concerns(direction));
    concerned.map(|policy| fit(policy, None, policy.default_of(direction))).collect()
}
