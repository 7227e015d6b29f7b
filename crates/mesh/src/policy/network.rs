//! networking.k8s.io/v1 NetworkPolicy as a [`Policy`].
//!
//! A NetworkPolicy that has a direction among its `policyTypes` denies what no rule allows in this direction, and has no rules
//! that deny. So the union of several is what the model does with several policies.

use super::rules::{Action, BySide, NamedPort, Namespaces, OnDeny, Peer, Pods, Policy, Ports, Rule};
use super::selector::Selector;
use crate::address::Protocol;
use crate::field::{Result, invalid, name, network, port_number};
use crate::name::Name;
use crate::object::Object;
use ipnet::IpNet;
use k8s_openapi::api::networking::v1::{IPBlock, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::sync::Arc;

/// Before the name of a NetworkPolicy, so that a document of kind Policy may have the same name.
const PREFIX: &str = "networkpolicy/";

/// The object under its own name. The error is the first invalid field.
pub fn object(from: &NetworkPolicy) -> Result<Object> {
    Ok(Object::NetworkPolicy(name(&from.metadata)?, policy(from)?))
}

/// The object's rules as a policy, with the name under which output shows it. The error is the first invalid field.
pub fn policy(from: &NetworkPolicy) -> Result<Policy> {
    let name = name(&from.metadata)?;
    let spec = from.spec.clone().unwrap_or_default();
    let (ingress, egress) = (spec.ingress.unwrap_or_default(), spec.egress.unwrap_or_default());
    let types = types(spec.policy_types.as_deref(), !egress.is_empty())?;
    let ingress = ingress.iter().enumerate().map(|(i, one)| {
        rule(&format!("spec.ingress[{i}]"), "from", one.from.as_deref(), one.ports.as_deref(), &name.namespace)
    });
    let egress = egress.iter().enumerate().map(|(i, one)| {
        rule(&format!("spec.egress[{i}]"), "to", one.to.as_deref(), one.ports.as_deref(), &name.namespace)
    });
    let mut rules = BySide { ingress: rules(types.ingress, ingress)?, egress: rules(types.egress, egress)? };
    if types.egress {
        rules.egress.push(to_node());
    }
    let default = |is_isolated| Some(if is_isolated { Action::Deny } else { Action::Allow });
    Ok(Policy {
        select: Selector::read("spec.podSelector", &spec.pod_selector.unwrap_or_default())?,
        defaults: BySide { egress: default(types.egress), ingress: default(types.ingress) },
        dry_run: false,
        on_deny: OnDeny::Refuse,
        requires_proxy: false,
        rules,
        name: shown(&name),
    })
}

/// The name of the policy that is made of the NetworkPolicy with this name: `networkpolicy/NAME`, as kubectl writes it.
pub fn shown(name: &Name) -> Name {
    Name::new(&name.namespace, &format!("{PREFIX}{}", name.name))
}

/// Traffic between a pod and its node is always allowed, in both directions. The model allows what comes from the node anyhow.
fn to_node() -> Rule {
    Rule { action: Action::Allow, peers: vec![Peer::Node], ports: Vec::new(), named: Vec::new() }
}

/// Which directions are isolated.
fn types(given: Option<&[String]>, has_egress: bool) -> Result<BySide<bool>> {
    let Some(given) = given.filter(|given| !given.is_empty()) else {
        return Ok(BySide { ingress: true, egress: has_egress });
    };
    let mut types = BySide::default();
    for (i, text) in given.iter().enumerate() {
        match text.as_str() {
            "Ingress" => types.ingress = true,
            "Egress" => types.egress = true,
            other => return invalid(format!("spec.policyTypes[{i}]"), other, "Ingress or Egress"),
        }
    }
    Ok(types)
}

/// Rules of a direction that is not isolated have no effect.
fn rules(is_isolated: bool, all: impl Iterator<Item = Result<Option<Rule>>>) -> Result<Vec<Rule>> {
    let all: Vec<Option<Rule>> = all.collect::<Result<_>>()?;
    Ok(if is_isolated { all.into_iter().flatten().collect() } else { Vec::new() })
}

/// None: it allows nothing that exists here, since all of its ports are SCTP's.
fn rule(
    path: &str,
    field: &str,
    peers: Option<&[NetworkPolicyPeer]>,
    ports: Option<&[NetworkPolicyPort]>,
    namespace: &Arc<str>,
) -> Result<Option<Rule>> {
    let peers = peers.unwrap_or_default().iter().enumerate();
    let peers = peers.map(|(i, one)| peer(format!("{path}.{field}[{i}]"), one, namespace)).collect::<Result<_>>()?;
    let given = ports.unwrap_or_default();
    let mut rule = Rule { action: Action::Allow, peers, ports: Vec::new(), named: Vec::new() };
    for (i, one) in given.iter().enumerate() {
        match port(format!("{path}.ports[{i}]"), one)? {
            Some(Port::Numbers(ports)) => rule.ports.push(ports),
            Some(Port::Named(named)) => rule.named.push(named),
            None => {}
        }
    }
    let is_any_port = rule.ports.is_empty() && rule.named.is_empty();
    Ok((given.is_empty() || !is_any_port).then_some(rule))
}

fn peer(path: String, from: &NetworkPolicyPeer, namespace: &Arc<str>) -> Result<Peer> {
    const ONE_OF: &str = "one of: ipBlock; podSelector or namespaceSelector or both";
    match (&from.ip_block, &from.namespace_selector, &from.pod_selector) {
        (Some(block), None, None) => range(format!("{path}.ipBlock"), block),
        (None, None, None) => invalid(path, (), ONE_OF),
        (None, namespaces, pods) => {
            let namespaces = match namespaces {
                None => Namespaces::Named(Arc::clone(namespace)),
                Some(selector) => match Selector::read(&format!("{path}.namespaceSelector"), selector)? {
                    all if all.is_empty() => Namespaces::Any,
                    some => Namespaces::Selected(some),
                },
            };
            let labels = pods.as_ref().map(|pods| Selector::read(&format!("{path}.podSelector"), pods)).transpose()?;
            Ok(Peer::Pods(Pods { namespaces, labels: labels.unwrap_or_default() }))
        }
        (Some(_), ..) => invalid(path, "several kinds", ONE_OF),
    }
}

fn range(path: String, from: &IPBlock) -> Result<Peer> {
    let range = cidr(format!("{path}.cidr"), &from.cidr)?;
    let holes = from.except.iter().flatten().enumerate();
    let except = holes.map(|(i, hole)| cidr(format!("{path}.except[{i}]"), hole)).collect::<Result<Vec<_>>>()?;
    match except.iter().find(|hole| !range.contains(*hole)) {
        Some(hole) => invalid(format!("{path}.except"), hole, "ranges inside of cidr"),
        None => Ok(Peer::Range { range, except }),
    }
}

fn cidr(path: String, text: &str) -> Result<IpNet> {
    match network(text) {
        Some(range) => Ok(range),
        None => invalid(path, text, "a range such as 10.0.0.0/8 or fd00::/8"),
    }
}

/// An element of `ports`.
enum Port {
    Numbers(Ports),
    Named(NamedPort),
}

/// None: SCTP, which has no ports here.
fn port(path: String, from: &NetworkPolicyPort) -> Result<Option<Port>> {
    let protocol = match from.protocol.as_deref().unwrap_or("TCP") {
        "TCP" => Protocol::Tcp,
        "UDP" => Protocol::Udp,
        "SCTP" => return Ok(None),
        other => return invalid(format!("{path}.protocol"), other, "TCP, UDP or SCTP"),
    };
    Ok(Some(match (&from.port, from.end_port) {
        (None, None) => Port::Numbers(Ports::all(protocol)),
        (None, Some(end)) => return invalid(format!("{path}.endPort"), end, "a port before it"),
        (Some(IntOrString::String(name)), None) => Port::Named(NamedPort { protocol, name: name.as_str().into() }),
        (Some(IntOrString::String(_)), Some(end)) => {
            return invalid(format!("{path}.endPort"), end, "a number in `port`, not a name");
        }
        (Some(IntOrString::Int(first)), end) => {
            let first = port_number(format!("{path}.port"), *first)?;
            let last = end.map_or(Ok(first), |end| port_number(format!("{path}.endPort"), end))?;
            if last < first {
                return invalid(format!("{path}.endPort"), last, "no port before `port`");
            }
            Port::Numbers(all_or(Ports { protocol, first, last }))
        }
    }))
}

/// Every port but 0, which nobody can dial: that takes one entry of a table.
fn all_or(ports: Ports) -> Ports {
    if (ports.first, ports.last) == (1, u16::MAX) { Ports::all(ports.protocol) } else { ports }
}
