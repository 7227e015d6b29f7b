//! The model of policy evaluation: the outcome for one connection.

use super::identity::Identity;
use super::rules::{Action, Direction, NamedPort, NamedPorts, OnDeny, Peer, Policy, Rule};
use crate::address::Protocol;
use crate::object::Name;
use std::net::IpAddr;

/// A connection of a pod that leaves the pod.
#[derive(Clone, Copy, Debug)]
pub struct Connection<'a> {
    /// As seen by the pod whose policies are evaluated: Ingress if it accepts the connection.
    pub direction: Direction,
    /// Address of the other end, after a Service's address was exchanged for a backend's.
    pub peer: IpAddr,
    /// What is known of the other end by its address.
    pub who: Who<'a>,
    /// None: neither TCP nor UDP. Rules that name ports do not match it.
    pub protocol: Option<Protocol>,
    /// The dialled port.
    pub port: u16,
    /// The named ports of the pod whose policies are evaluated.
    pub own_ports: &'a NamedPorts,
}

/// The other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who<'a> {
    /// A pod of any node.
    Pod(&'a Identity),
    /// This node: its own addresses, and programs in its network namespace.
    Node,
    /// Only rules about addresses can name it.
    Unknown,
}

/// What the policies in force decide, and what those in dry run would change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evaluation {
    /// By the policies in force only.
    pub outcome: Outcome,
    /// The connection is allowed, but would be denied if policies in dry run were in force.
    pub would_be_denied: bool,
}

/// Whether the connection is let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Some rule or default allows it, and none denies it; or no policy concerns it.
    Allowed,
    /// The value says what the denied side notices.
    Denied(OnDeny),
}

/// Whether several hosts may have this address: multicast, broadcast, or IPv6 link-local, which differs on each link. Broadcast
/// addresses of a pod's own networks are known only in its namespace.
pub fn is_shared(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_multicast() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_multicast() || v6.is_unicast_link_local(),
    }
}

/// Evaluates the policies that select the pod.
pub fn evaluate(policies: &[&Policy], connection: &Connection) -> Evaluation {
    let in_force: Vec<&Policy> = policies.iter().copied().filter(|policy| !policy.dry_run).collect();
    let outcome = outcome(&in_force, connection);
    let would_be_denied = outcome == Outcome::Allowed && self::outcome(policies, connection) != Outcome::Allowed;
    Evaluation { outcome, would_be_denied }
}

fn outcome(policies: &[&Policy], connection: &Connection) -> Outcome {
    // The probes of the node, and of its agents, keep the pod alive.
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

/// Whether a peer that a rule denies by identity could be behind a shared address.
fn hides_denied(policies: &[&Policy], connection: &Connection) -> bool {
    let is_unknown = connection.who == Who::Unknown && is_shared(connection.peer);
    is_unknown && policies.iter().any(|policy| policy.denies_by_name(connection.direction))
}

/// The outcome if these policies deny: one that wants a drop suffices. No policy: allowed.
fn denied_by<'a>(policies: impl Iterator<Item = &'a Policy>) -> Outcome {
    let wishes: Vec<OnDeny> = policies.map(|policy| policy.on_deny).collect();
    match wishes.contains(&OnDeny::Drop) {
        _ if wishes.is_empty() => Outcome::Allowed,
        true => Outcome::Denied(OnDeny::Drop),
        false => Outcome::Denied(OnDeny::Refuse),
    }
}

impl Rule {
    /// Whether peers and ports match. The direction is not checked: a rule does not know its own.
    pub(crate) fn fits(&self, connection: &Connection) -> bool {
        let port = |ports: &super::rules::Ports| {
            connection.protocol.is_some_and(|protocol| ports.contains(protocol, connection.port))
        };
        let is_any_port = self.ports.is_empty() && self.named.is_empty();
        (self.peers.is_empty() || self.peers.iter().any(|peer| peer.is(connection)))
            && (is_any_port || self.ports.iter().any(port) || self.named.iter().any(|port| port.is_dialled(connection)))
    }
}

impl NamedPort {
    /// The name is looked up at the end that accepts the connection.
    fn is_dialled(&self, connection: &Connection) -> bool {
        let accepting = match (connection.direction, connection.who) {
            (Direction::Ingress, _) => connection.own_ports,
            (Direction::Egress, Who::Pod(identity)) => &identity.ports,
            (Direction::Egress, _) => return false,
        };
        let number = accepting.get(&(self.name.clone(), self.protocol));
        number == Some(&connection.port) && connection.protocol == Some(self.protocol)
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

/// A rule that matches a connection, or a default that applies: explains an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit<'a> {
    /// The policy that contains the rule or has the default.
    pub policy: &'a Name,
    /// Index in the policy's list. None: the policy's default.
    pub rule: Option<usize>,
    /// What this rule or default alone says.
    pub action: Action,
    /// The policy is in dry run.
    pub dry_run: bool,
}

/// All matching rules; defaults only if no rule of any policy matches.
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
