//! Policies, as read from documents.

pub use crate::labels::Labels;

use super::selector::Selector;
use crate::address::Protocol;
use crate::name::Name;
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Ports of a pod's containers by name and protocol.
pub type NamedPorts = BTreeMap<(Arc<str>, Protocol), u16>;

/// A document of kind Policy, or a NetworkPolicy, checked and with defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// A policy selects pods of its own namespace.
    pub name: Name,
    /// Selects pods by their labels. Empty: every pod of the namespace.
    pub select: Selector,
    /// The action where no rule matches. None: as [`Policy::default_of`] says.
    pub defaults: BySide<Option<Action>>,
    /// The policy only counts and reports.
    pub dry_run: bool,
    /// For this policy's denials. If several policies deny a connection, one that drops suffices.
    pub on_deny: OnDeny,
    /// The selected pods' connections never bypass their proxy.
    pub requires_proxy: bool,
    /// In the document's order, which does not matter for the outcome.
    pub rules: BySide<Vec<Rule>>,
}

/// A value for each direction, as seen by the pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BySide<T> {
    /// For what the pod sends.
    pub egress: T,
    /// For what the pod receives.
    pub ingress: T,
}

/// Mirrors `enum direction`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// The pod opens the connection.
    Egress,
    /// The pod accepts the connection.
    Ingress,
}

/// What a rule or a default says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Counts only if nothing denies.
    Allow,
    /// In a rule it outweighs every Allow; as a default it counts only if no rule matches.
    Deny,
}

/// What the denied side notices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDeny {
    /// ECONNREFUSED, as from a host without a listener.
    #[default]
    Refuse,
    /// Nothing. Only a pod's own call fails at once, with EHOSTUNREACH, since nothing is sent.
    Drop,
}

/// An element of a policy's `egress` or `ingress`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Applies to connections that both `peers` and `ports` match.
    pub action: Action,
    /// The other end must be one of them. Empty: anybody.
    pub peers: Vec<Peer>,
    /// The dialled port must be one of them, or of `named`. Both empty: any port.
    pub ports: Vec<Ports>,
    /// In NetworkPolicies only.
    pub named: Vec<NamedPort>,
}

/// A port of the pod that accepts the connection, by its name there. No other address has such a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPort {
    /// TCP by default.
    pub protocol: Protocol,
    /// `name` of a container's port.
    pub name: Arc<str>,
}

/// Whom a rule is about. Where a Service is dialled, the peer is the chosen backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Of any node, by their identities.
    Pods(Pods),
    /// Addresses, whoever has them.
    Range {
        /// The host bits are 0.
        range: IpNet,
        /// Parts of `range` to which the rule does not apply.
        except: Vec<IpNet>,
    },
    /// This node.
    Node,
}

/// Pods of some namespaces, by their labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pods {
    /// Where they are.
    pub namespaces: Namespaces,
    /// Empty: every pod of these namespaces.
    pub labels: Selector,
}

/// Some namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Namespaces {
    /// All of them.
    Any,
    /// The one of this name.
    Named(Arc<str>),
    /// Those whose own labels match, in NetworkPolicies only.
    Selected(Selector),
}

/// Ports from the first to the last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// A rule with ports matches only this protocol.
    pub protocol: Protocol,
    /// 0 only if all ports are meant.
    pub first: u16,
    /// The same as `first` for a single port.
    pub last: u16,
}

impl Ports {
    /// What a document means by a protocol without a port.
    pub fn all(protocol: Protocol) -> Ports {
        Ports { protocol, first: 0, last: u16::MAX }
    }

    /// Whether they are what [`Ports::all`] returns: one entry of a table then suffices.
    pub fn are_all(&self) -> bool {
        (self.first, self.last) == (0, u16::MAX)
    }

    /// Whether a connection with this protocol and dialled port is meant.
    pub fn contains(&self, protocol: Protocol, port: u16) -> bool {
        self.protocol == protocol && (self.first..=self.last).contains(&port)
    }
}

impl Direction {
    /// In the order of `enum direction`.
    pub const BOTH: [Direction; 2] = [Direction::Egress, Direction::Ingress];
}

impl<T> BySide<T> {
    /// A direction that is known only at run time.
    pub fn at(&self, direction: Direction) -> &T {
        match direction {
            Direction::Egress => &self.egress,
            Direction::Ingress => &self.ingress,
        }
    }

    /// As [`BySide::at`].
    pub(crate) fn at_mut(&mut self, direction: Direction) -> &mut T {
        match direction {
            Direction::Egress => &mut self.egress,
            Direction::Ingress => &mut self.ingress,
        }
    }
}

impl Policy {
    /// Whether the policy applies to a pod with these properties.
    pub fn selects(&self, namespace: &str, labels: &Labels) -> bool {
        *self.name.namespace == *namespace && self.select.matches(labels)
    }

    /// The default is `deny` if any rule allows: a list of allowed peers implies that others are denied.
    pub fn default_of(&self, direction: Direction) -> Action {
        let allows = self.rules.at(direction).iter().any(|rule| rule.action == Action::Allow);
        self.defaults.at(direction).unwrap_or(if allows { Action::Deny } else { Action::Allow })
    }

    /// Whether a rule denies by the peer's identity rather than its address.
    pub fn denies_by_name(&self, direction: Direction) -> bool {
        let denying = self.rules.at(direction).iter().filter(|rule| rule.action == Action::Deny);
        denying.flat_map(|rule| &rule.peers).any(|peer| !matches!(peer, Peer::Range { .. }))
    }

    /// Whether a rule depends on the numbers that the selected pods' own named ports have.
    pub(crate) fn names_own_ports(&self) -> bool {
        self.rules.ingress.iter().any(|rule| !rule.named.is_empty())
    }

    /// Whether the policy says anything about this direction.
    pub fn concerns(&self, direction: Direction) -> bool {
        !self.rules.at(direction).is_empty() || self.default_of(direction) == Action::Deny
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Direction::Egress => "egress",
            Direction::Ingress => "ingress",
        })
    }
}
