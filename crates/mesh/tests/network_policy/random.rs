//! Random NetworkPolicies, read from documents, give the oracle's answers for every pair of ends and every port.

use super::oracle::{self, Policy};
use super::world::{End, NAMESPACES, PODS, World};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use sidestep_mesh::address::Protocol;
use sidestep_mesh::object::Name;

const RANGES: [&str; 6] = ["0.0.0.0/0", "10.0.0.0/8", "10.0.1.0/24", "10.0.1.2/32", "10.0.2.0/24", "198.51.100.0/24"];
/// 79 and 82 are nobody's.
const PORTS: std::ops::RangeInclusive<u16> = 79..=82;

fn one_of(list: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop::sample::select(list)
}

/// A key, and a value that the key may have.
fn label() -> impl Strategy<Value = (&'static str, &'static str)> {
    prop_oneof![
        one_of(&["a", "b", "c"]).prop_map(|value| ("pod", value)),
        one_of(&["a", "b"]).prop_map(|value| ("statefulset.kubernetes.io/pod-name", value)),
        one_of(&["front", "back"]).prop_map(|value| ("tier", value)),
        one_of(&["x", "y"]).prop_map(|value| ("ns", value)),
        one_of(&["y", "z"]).prop_map(|value| ("kubernetes.io/metadata.name", value)),
        one_of(&["red", "blue"]).prop_map(|value| ("team", value)),
    ]
}

fn requirement() -> impl Strategy<Value = Value> {
    let values = prop::collection::vec(label(), 1..3);
    (label(), values, one_of(&["In", "NotIn", "Exists", "DoesNotExist"])).prop_map(
        |((key, value), others, operator)| {
            let values: Vec<&str> = others.iter().map(|(_, other)| *other).chain([value]).collect();
            match operator {
                "In" | "NotIn" => json!({"key": key, "operator": operator, "values": values}),
                _ => json!({"key": key, "operator": operator}),
            }
        },
    )
}

fn selector() -> impl Strategy<Value = Value> {
    let labels = prop::option::weighted(0.4, label());
    (labels, prop::collection::vec(requirement(), 0..2)).prop_map(|(label, requirements)| {
        let mut selector = Map::new();
        if let Some((key, value)) = label {
            selector.insert("matchLabels".into(), json!({key: value}));
        }
        if !requirements.is_empty() {
            selector.insert("matchExpressions".into(), requirements.into());
        }
        selector.into()
    })
}

fn block() -> impl Strategy<Value = Value> {
    let holes = prop::collection::vec(prop::sample::select(&RANGES[..]), 0..3);
    (prop::sample::select(&RANGES[..]), holes).prop_map(|(cidr, holes)| {
        let range: ipnet::IpNet = cidr.parse().unwrap();
        let holes: Vec<&str> =
            holes.into_iter().filter(|hole| range.contains(&hole.parse::<ipnet::IpNet>().unwrap())).collect();
        json!({"ipBlock": {"cidr": cidr, "except": holes}})
    })
}

fn peer() -> impl Strategy<Value = Value> {
    prop_oneof![
        selector().prop_map(|pods| json!({"podSelector": pods})),
        selector().prop_map(|namespaces| json!({"namespaceSelector": namespaces})),
        (selector(), selector())
            .prop_map(|(pods, namespaces)| json!({"podSelector": pods, "namespaceSelector": namespaces})),
        block(),
    ]
}

fn port() -> impl Strategy<Value = Value> {
    let protocol = prop::option::of(one_of(&["TCP", "UDP", "SCTP"]));
    let number = prop_oneof![
        Just(json!({})),
        PORTS.prop_map(|port| json!({"port": port})),
        (PORTS, 0..3u16).prop_map(|(port, more)| json!({"port": port, "endPort": port + more})),
        Just(json!({"port": 1, "endPort": 65535})),
        one_of(&["serve-80-tcp", "web", "dns", "nothing"]).prop_map(|name| json!({"port": name})),
    ];
    (protocol, number).prop_map(|(protocol, mut port)| {
        if let Some(protocol) = protocol {
            port["protocol"] = protocol.into();
        }
        port
    })
}

/// Named ports of ranges are not looked for outbound: see docs/policy.md.
fn is_supported(rule: &Value) -> bool {
    let has = |field: &str, is: fn(&Value) -> bool| rule[field].as_array().is_some_and(|list| list.iter().any(is));
    !(has("to", |peer| peer.get("ipBlock").is_some()) && has("ports", |port| port["port"].is_string()))
}

fn rule(field: &'static str) -> impl Strategy<Value = Value> {
    let peers = prop::option::of(prop::collection::vec(peer(), 0..3));
    let ports = prop::option::of(prop::collection::vec(port(), 0..3));
    let rule = (peers, ports).prop_map(move |(peers, ports)| {
        let mut rule = json!({});
        peers.into_iter().for_each(|peers| rule[field] = peers.into());
        ports.into_iter().for_each(|ports| rule["ports"] = ports.into());
        rule
    });
    rule.prop_filter("a named port of a range", is_supported)
}

fn policy() -> impl Strategy<Value = (&'static str, Value)> {
    let types = prop::option::of(prop::sample::subsequence(vec!["Ingress", "Egress"], 0..=2));
    let rules = |field| prop::option::of(prop::collection::vec(rule(field), 0..3));
    (one_of(&NAMESPACES), selector(), types, rules("from"), rules("to")).prop_map(
        |(namespace, select, types, ingress, egress)| {
            let mut spec = json!({"podSelector": select});
            types.into_iter().for_each(|types| spec["policyTypes"] = types.into());
            ingress.into_iter().for_each(|rules| spec["ingress"] = rules.into());
            egress.into_iter().for_each(|rules| spec["egress"] = rules.into());
            (namespace, spec)
        },
    )
}

fn ends() -> Vec<End> {
    let pods = NAMESPACES.iter().flat_map(|namespace| PODS.iter().map(|pod| End::Pod(Name::new(namespace, pod))));
    pods.chain([End::Node, End::Outside("198.51.100.7".parse().unwrap())]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn policies_mean_what_the_oracle_says(policies in prop::collection::vec(policy(), 0..4)) {
        let document = |(number, (namespace, spec)): (usize, &(&str, Value))| {
            let metadata = json!({"name": format!("p{number}"), "namespace": namespace});
            json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata, "spec": spec})
        };
        let text: String = policies.iter().enumerate().map(|one| format!("---\n{}\n", document(one))).collect();
        let world = World::new(&text);
        let policies: Vec<Policy> = policies
            .into_iter()
            .map(|(namespace, spec)| Policy { namespace: namespace.into(), spec: serde_json::from_value(spec).unwrap() })
            .collect();
        let ends = ends();
        for (client, server) in ends.iter().flat_map(|client| ends.iter().map(move |server| (client, server))) {
            if client == server {
                continue;
            }
            for (protocol, port) in [Protocol::Tcp, Protocol::Udp].into_iter().flat_map(|p| PORTS.map(move |n| (p, n))) {
                let expected = oracle::allows(&policies, client, server, &protocol.to_string(), port);
                let found = world.passes(client, server, protocol, port);
                prop_assert_eq!(found, expected, "{:?} to {:?} {} {}", client, server, protocol, port);
            }
        }
    }
}
