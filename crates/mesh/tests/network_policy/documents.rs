//! What is read of a NetworkPolicy, and what is an error.

use sidestep_mesh::address::Protocol;
use sidestep_mesh::object::{Key, Name, Object};
use sidestep_mesh::policy::rules::{Action, BySide, Direction, Ports};
use sidestep_mesh::state::{Change, State};
use sidestep_mesh::yaml;

fn document(spec: &str) -> String {
    format!(
        "{{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {{name: web, namespace: shop}}, spec: {{{spec}}}}}"
    )
}

fn read(spec: &str) -> sidestep_mesh::policy::rules::Policy {
    match yaml::parse(&document(spec)).expect(spec).pop() {
        Some(Object::NetworkPolicy(_, policy)) => policy,
        other => panic!("{other:?}"),
    }
}

#[test]
fn directions_that_are_isolated() {
    let (allow, deny) = (Some(Action::Allow), Some(Action::Deny));
    for (spec, egress, ingress) in [
        ("podSelector: {}", allow, deny),
        ("", allow, deny),
        ("podSelector: {}, policyTypes: []", allow, deny),
        ("podSelector: {}, egress: []", allow, deny),
        ("podSelector: {}, egress: [{}]", deny, deny),
        ("podSelector: {}, policyTypes: [Egress]", deny, allow),
        ("podSelector: {}, policyTypes: [Ingress], egress: [{}]", allow, deny),
        ("podSelector: {}, policyTypes: [Egress], ingress: [{}]", deny, allow),
    ] {
        let policy = read(spec);
        assert_eq!(policy.defaults, BySide { egress, ingress }, "{spec}");
        let isolates = |direction| policy.concerns(direction);
        assert_eq!(
            (isolates(Direction::Egress), isolates(Direction::Ingress)),
            (egress == deny, ingress == deny),
            "{spec}"
        );
    }
}

/// Else a range of all ports would take 65,535 entries for each peer.
#[test]
fn all_ports_are_one_entry() {
    let policy = read("podSelector: {}, ingress: [{ports: [{port: 1, endPort: 65535, protocol: UDP}]}]");
    assert_eq!(policy.rules.ingress[0].ports, [Ports::all(Protocol::Udp)]);
}

#[test]
fn what_is_written_wrongly_is_named() {
    for (spec, path, expected) in [
        ("podSelector: {}, policyTypes: [Both]", "spec.policyTypes[0]", "Ingress or Egress"),
        ("podSelector: {matchLabel: {}}", "spec.podSelector.matchLabel", "no such field"),
        (
            "podSelector: {matchExpressions: [{key: a, operator: In}]}",
            "spec.podSelector.matchExpressions[0].values",
            "at least one value",
        ),
        (
            "podSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}",
            "spec.podSelector.matchExpressions[0].values",
            "no value",
        ),
        (
            "podSelector: {matchExpressions: [{key: a, operator: Like, values: [b]}]}",
            "spec.podSelector.matchExpressions[0].operator",
            "In, NotIn",
        ),
        ("ingress: [{from: [{}]}]", "spec.ingress[0].from[0]", "one of"),
        ("ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8}, podSelector: {}}]}]", "spec.ingress[0].from[0]", "one of"),
        ("ingress: [{from: [{ipBlock: {cidr: 10.0.0.0}}]}]", "spec.ingress[0].from[0].ipBlock.cidr", "a range"),
        (
            "egress: [{to: [{ipBlock: {cidr: 10.0.0.0/16, except: [10.1.0.0/16]}}]}]",
            "spec.egress[0].to[0].ipBlock.except",
            "inside of cidr",
        ),
        ("egress: [{ports: [{endPort: 80}]}]", "spec.egress[0].ports[0].endPort", "a port before it"),
        ("egress: [{ports: [{port: 80, endPort: 79}]}]", "spec.egress[0].ports[0].endPort", "no port before"),
        ("egress: [{ports: [{port: web, endPort: 79}]}]", "spec.egress[0].ports[0].endPort", "not a name"),
        ("egress: [{ports: [{port: 0}]}]", "spec.egress[0].ports[0].port", "a port from 1"),
        ("egress: [{ports: [{port: 80, protocol: tcp}]}]", "spec.egress[0].ports[0].protocol", "TCP, UDP or SCTP"),
    ] {
        let wrong = yaml::parse(&document(spec)).unwrap_err();
        assert_eq!(wrong.path, path, "{wrong}");
        assert!(wrong.what.contains(expected), "{wrong}");
    }
}

#[test]
fn a_policy_of_the_same_name_is_another_one() {
    let own = "{apiVersion: sidestep.dev/v1, kind: Policy, metadata: {name: web, namespace: shop}, spec: {}}";
    let mut state = State::default();
    for object in yaml::parse(&format!("{own}\n---\n{}", document("podSelector: {}"))).unwrap() {
        state.apply(Change::Put(object));
    }
    let names = |state: &State| state.policies().map(|policy| policy.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(&state), ["shop/web", "shop/networkpolicy/web"]);
    assert!(state.apply(Change::Delete(Key::NetworkPolicy(Name::new("shop", "web")))).policy);
    assert_eq!(names(&state), ["shop/web"]);
}

/// The API server accepts it. A policy that cannot be read would leave its namespace under what an earlier agent enforced.
#[test]
fn an_ipv4_range_that_is_written_as_ipv6_is_one() {
    let read = |cidr: &str, hole: &str| {
        yaml::parse(&document(&format!("egress: [{{to: [{{ipBlock: {{cidr: '{cidr}', except: ['{hole}']}}}}]}}]")))
    };
    assert_eq!(read("::ffff:10.0.0.0/104", "::ffff:10.1.0.0/112"), read("10.0.0.0/8", "10.1.0.0/16"));
    assert!(read("10.0.0.0/8", "10.1.0.0/16").is_ok());
    assert_eq!(read("::ffff:10.0.0.0/90", "::ffc1:0:0/96"), read("::ffc0:0:0/90", "::ffc1:0:0/96"));
    assert!(read("::ffff:10.0.0.0/90", "::ffc1:0:0/96").is_ok(), "a range around all of IPv4's is one of IPv6");
}
