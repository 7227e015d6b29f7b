//! What the documentation of NetworkPolicy says, word by word, on the objects themselves. It uses none of our code but the names.

use super::world::{End, NAMESPACES, PODS, address};
use k8s_openapi::api::networking::v1::{IPBlock, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

pub struct Policy {
    pub namespace: String,
    pub spec: NetworkPolicySpec,
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Client,
    Server,
}

/// Whether the policies allow a connection to this port.
pub fn allows(policies: &[Policy], client: &End, server: &End, protocol: &str, port: u16) -> bool {
    side_allows(policies, Side::Client, client, server, protocol, port)
        && side_allows(policies, Side::Server, server, client, protocol, port)
}

fn side_allows(policies: &[Policy], side: Side, own: &End, peer: &End, protocol: &str, port: u16) -> bool {
    let End::Pod(name) = own else { return true };
    if *peer == End::Node {
        return true;
    }
    let selecting = policies.iter().filter(|policy| {
        *policy.namespace == *name.namespace && selects(policy.spec.pod_selector.as_ref(), &labels_of_pod(&name.name))
    });
    let isolating: Vec<&Policy> = selecting.filter(|policy| isolates(&policy.spec, side)).collect();
    isolating.is_empty() || isolating.iter().any(|policy| has_rule_for(policy, side, own, peer, protocol, port))
}

fn isolates(spec: &NetworkPolicySpec, side: Side) -> bool {
    let types = spec.policy_types.as_deref().unwrap_or_default();
    match side {
        Side::Server => types.is_empty() || types.iter().any(|one| one == "Ingress"),
        Side::Client if types.is_empty() => spec.egress.as_ref().is_some_and(|rules| !rules.is_empty()),
        Side::Client => types.iter().any(|one| one == "Egress"),
    }
}

fn has_rule_for(policy: &Policy, side: Side, own: &End, peer: &End, protocol: &str, port: u16) -> bool {
    let ingress = policy.spec.ingress.iter().flatten().map(|rule| (rule.from.as_deref(), rule.ports.as_deref()));
    let egress = policy.spec.egress.iter().flatten().map(|rule| (rule.to.as_deref(), rule.ports.as_deref()));
    let mut rules: Box<dyn Iterator<Item = _>> =
        if side == Side::Server { Box::new(ingress) } else { Box::new(egress) };
    let server = if side == Side::Server { own } else { peer };
    rules.any(|(peers, ports)| {
        let (peers, ports) = (peers.unwrap_or_default(), ports.unwrap_or_default());
        (peers.is_empty() || peers.iter().any(|one| is_peer(one, peer, &policy.namespace)))
            && (ports.is_empty() || ports.iter().any(|one| is_port(one, server, protocol, port)))
    })
}

fn is_peer(rule: &NetworkPolicyPeer, peer: &End, own_namespace: &str) -> bool {
    if let Some(block) = &rule.ip_block {
        return match peer {
            End::Pod(name) => is_inside(block, address(&name.namespace, &name.name)),
            End::Outside(address) => is_inside(block, *address),
            End::Node => unreachable!("it is always allowed"),
        };
    }
    let End::Pod(name) = peer else { return false };
    let is_there = match &rule.namespace_selector {
        Some(selector) => selects(Some(selector), &labels_of_namespace(&name.namespace)),
        None => *name.namespace == *own_namespace,
    };
    is_there && rule.pod_selector.as_ref().is_none_or(|selector| selects(Some(selector), &labels_of_pod(&name.name)))
}

fn is_inside(block: &IPBlock, address: IpAddr) -> bool {
    let IpAddr::V4(address) = address else { return false };
    let holds = |text: &str| {
        let (network, length) = text.split_once('/').expect("a range");
        let (network, length): (Ipv4Addr, u32) = (network.parse().unwrap(), length.parse().unwrap());
        let differs = u32::from(network) ^ u32::from(address);
        differs.checked_shr(32 - length).unwrap_or(0) == 0
    };
    holds(&block.cidr) && !block.except.iter().flatten().any(|hole| holds(hole))
}

fn is_port(rule: &NetworkPolicyPort, server: &End, protocol: &str, port: u16) -> bool {
    let is_number = match &rule.port {
        None => true,
        Some(IntOrString::Int(first)) => {
            let last = rule.end_port.unwrap_or(*first);
            (*first..=last).contains(&i32::from(port))
        }
        Some(IntOrString::String(name)) => match server {
            End::Pod(pod) => number(&pod.name, name, protocol) == Some(port),
            _ => false,
        },
    };
    rule.protocol.as_deref().unwrap_or("TCP") == protocol && is_number
}

fn number(pod: &str, name: &str, protocol: &str) -> Option<u16> {
    match (pod, name, protocol) {
        (_, "serve-80-tcp", "TCP") | ("a", "web", "TCP") | (_, "dns", "UDP") => Some(80),
        (_, "serve-81-tcp", "TCP") | ("b", "web", "TCP") => Some(81),
        _ => None,
    }
}

type Labels = BTreeMap<String, String>;

fn labels_of_pod(pod: &str) -> Labels {
    assert!(PODS.contains(&pod));
    let tier = match pod {
        "a" => Some("front"),
        "b" => Some("back"),
        _ => None,
    };
    let all = [("pod", Some(pod)), ("statefulset.kubernetes.io/pod-name", Some(pod)), ("tier", tier)];
    all.into_iter().filter_map(|(key, value)| Some((key.to_string(), value?.to_string()))).collect()
}

fn labels_of_namespace(namespace: &str) -> Labels {
    assert!(NAMESPACES.contains(&namespace));
    let team = match namespace {
        "x" => Some("red"),
        "y" => Some("blue"),
        _ => None,
    };
    let all = [("ns", Some(namespace)), ("kubernetes.io/metadata.name", Some(namespace)), ("team", team)];
    all.into_iter().filter_map(|(key, value)| Some((key.to_string(), value?.to_string()))).collect()
}

/// No selector selects everything, as an empty one does.
fn selects(selector: Option<&LabelSelector>, labels: &Labels) -> bool {
    let Some(selector) = selector else { return true };
    let equal = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    equal
        && selector.match_expressions.iter().flatten().all(|one| {
            let values = one.values.as_deref().unwrap_or_default();
            match (one.operator.as_str(), labels.get(&one.key)) {
                ("In", found) => found.is_some_and(|value| values.contains(value)),
                ("NotIn", found) => !found.is_some_and(|value| values.contains(value)),
                ("Exists", found) => found.is_some(),
                ("DoesNotExist", found) => found.is_none(),
                (other, _) => panic!("{other}"),
            }
        })
}
