//! The cases of Kubernetes' end-to-end suite for NetworkPolicy (test/e2e/network/netpol), by name. Steps of a case are rows with the
//! same name. Every pod may reach every other one, but for what a row says.

use super::table::*;
use super::world::{End, NAMESPACES, PODS, World, pod};
use sidestep_mesh::address::Protocol::{self, Tcp};
use sidestep_mesh::object::Name;
use std::fmt::Write;

/// As documents.
fn documents(policies: &[&str]) -> String {
    let mut text = String::new();
    for (number, policy) in policies.iter().enumerate() {
        let (namespace, spec) = policy.split_once(": ").expect("NAMESPACE: SPEC");
        writeln!(
            text,
            "---\n{{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {{name: p{number}, namespace: \
             {namespace}}}, spec: {{{spec}}}}}"
        )
        .unwrap();
    }
    text
}

/// `x/*` fits `x/a`.
fn fits(pattern: &str, pod: (&str, &str)) -> bool {
    let (namespace, name) = pattern.split_once('/').expect("NAMESPACE/POD");
    let is = |wanted: &str, found: &str| wanted == "*" || wanted == found;
    is(namespace, pod.0) && is(name, pod.1)
}

fn expected(lines: &[&str], client: (&str, &str), server: (&str, &str)) -> bool {
    let mut passes = true;
    for line in lines {
        let (ends, answer) = line.rsplit_once(": ").expect("ENDS: yes|no");
        let (clients, servers) = ends.split_once(" > ").expect("CLIENTS > SERVERS");
        if fits(clients, client) && fits(servers, server) {
            passes = answer == "yes";
        }
    }
    passes
}

fn compare(case: &str, world: &World, protocol: Protocol, port: u16, lines: &[&str]) {
    let pods = || NAMESPACES.iter().flat_map(|namespace| PODS.iter().map(move |pod| (*namespace, *pod)));
    for (client, server) in pods().flat_map(|client| pods().map(move |server| (client, server))) {
        // What a pod says to itself is under no policy.
        if client != server {
            let end = |(namespace, pod): (&str, &str)| End::Pod(Name::new(namespace, pod));
            let found = world.passes(&end(client), &end(server), protocol, port);
            assert_eq!(found, expected(lines, client, server), "{case}: {client:?} to {server:?} {protocol} {port}");
        }
    }
}

#[test]
fn the_upstream_cases_by_name() {
    for (case, policies, protocol, port, lines) in CASES {
        compare(case, &World::new(&documents(policies)), *protocol, *port, lines);
    }
}

#[test]
fn should_allow_ingress_access_from_updated_namespace() {
    compare("before", &World::new(&documents(&[UPDATED])), Tcp, 80, &["*/* > x/a: no"]);
    let relabelled = "---\n{apiVersion: v1, kind: Namespace, metadata: {name: y, labels: {ns: y, ns2: updated}}}\n";
    let world = World::new(&(documents(&[UPDATED]) + relabelled));
    compare("after", &world, Tcp, 80, &["*/* > x/a: no", "y/* > x/a: yes"]);
}

#[test]
fn should_allow_ingress_access_from_updated_pod() {
    compare("before", &World::new(&documents(&[FROM_UPDATED])), Tcp, 80, &["*/* > x/a: no"]);
    let world = World::new(&(documents(&[FROM_UPDATED]) + &pod("x", "b", "pod: b, pod2: updated")));
    compare("after", &world, Tcp, 80, &["*/* > x/a: no", "x/b > x/a: yes"]);
}

#[test]
fn should_deny_ingress_access_to_updated_pod() {
    compare("before", &World::new(&documents(&[ISOLATED])), Tcp, 80, &[]);
    let world = World::new(&(documents(&[ISOLATED]) + &pod("x", "a", "pod: a, target: isolated")));
    compare("after", &world, Tcp, 80, &["*/* > x/a: no"]);
}

/// The node's traffic, and pods in the node's own network, are outside of all policies, in both directions.
#[test]
fn the_node_is_always_reached_and_always_reaches() {
    let (world, a) = (World::new(&documents(&[DENY_ALL])), End::Pod(Name::new("x", "a")));
    assert!(world.passes(&End::Node, &a, Tcp, 80) && world.passes(&a, &End::Node, Tcp, 80));
    let outside = End::Outside("198.51.100.7".parse().unwrap());
    assert!(!world.passes(&outside, &a, Tcp, 80) && !world.passes(&a, &outside, Tcp, 80));
}
