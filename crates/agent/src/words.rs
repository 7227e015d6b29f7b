//! Policies and their rules in readable form.

use sidestep_mesh::object::Name;
use sidestep_mesh::policy::identity::{self, Identity};
use sidestep_mesh::policy::rules::{
    Action, Direction, Labels, NamedPort, Namespaces, OnDeny, Peer, Policy, Ports, Rule,
};

pub fn action(of: Action) -> &'static str {
    match of {
        Action::Allow => "allow",
        Action::Deny => "deny",
    }
}

pub fn on_deny(of: OnDeny) -> &'static str {
    match of {
        OnDeny::Refuse => "refuse",
        OnDeny::Drop => "drop",
    }
}

/// `egress 1: allow TCP 5432 to pods app=db of shop`
pub fn rule(policy: &Policy, direction: Direction, place: usize) -> String {
    let Rule { action: what, peers, ports, named } = &policy.rules.at(direction)[place];
    let (preposition, nobody) = match direction {
        Direction::Egress => ("to", "everybody"),
        Direction::Ingress => ("from", "everybody"),
    };
    let all = |words: Vec<String>, none: &str| if words.is_empty() { none.into() } else { words.join(", ") };
    let ports = all(ports.iter().map(port).chain(named.iter().map(named_port)).collect(), "everything");
    let peers = all(peers.iter().map(|one| peer(one, &policy.name)).collect(), nobody);
    format!("{direction} {}: {} {ports} {preposition} {peers}", place + 1, action(*what))
}

/// The rules of one policy, in the order in which they are written.
pub fn rules(policy: &Policy) -> Vec<String> {
    let of = |direction| (0..policy.rules.at(direction).len()).map(move |place| rule(policy, direction, place));
    Direction::BOTH.into_iter().flat_map(of).collect()
}

fn port(of: &Ports) -> String {
    match of {
        ports if ports.are_all() => of.protocol.to_string(),
        ports if ports.first == ports.last => format!("{} {}", ports.protocol, ports.first),
        ports => format!("{} {}-{}", ports.protocol, ports.first, ports.last),
    }
}

fn named_port(of: &NamedPort) -> String {
    format!("{} {}", of.protocol, of.name)
}

fn peer(of: &Peer, policy: &Name) -> String {
    match of {
        Peer::Pods(pods) => {
            let labels = if pods.labels.is_empty() { String::new() } else { format!(" {}", pods.labels) };
            match &pods.namespaces {
                Namespaces::Named(name) if *name == policy.namespace => format!("pods{labels}"),
                Namespaces::Named(name) => format!("pods{labels} of {name}"),
                Namespaces::Any => format!("pods{labels} of any namespace"),
                Namespaces::Selected(selector) => format!("pods{labels} of namespaces {selector}"),
            }
        }
        Peer::Range { range, except } if except.is_empty() => range.to_string(),
        Peer::Range { range, except } => {
            let holes: Vec<String> = except.iter().map(ToString::to_string).collect();
            format!("{range} without {}", holes.join(" and "))
        }
        Peer::Node => "the node".into(),
    }
}

pub fn labels(of: &Labels) -> String {
    of.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

pub fn identity(of: &Identity) -> String {
    if of.labels.is_empty() {
        format!("{} (no labels)", of.namespace)
    } else {
        format!("{} {}", of.namespace, labels(&of.labels))
    }
}

/// The identity with this number in readable form.
pub fn numbered(number: u32, known: Option<&Identity>) -> String {
    match (number, known) {
        (identity::NODE, _) => "the node".into(),
        (identity::UNKNOWN, _) => "nobody known".into(),
        (_, Some(one)) => identity(one),
        (_, None) => "somebody who has gone".into(),
    }
}
