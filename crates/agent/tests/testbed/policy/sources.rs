//! Policies from a directory, and pods from an API server.

use super::world::{call, is_refused};
use crate::agent::{Node, server};
use crate::api_server::{NAMESPACES, NETWORK_POLICIES, PODS, PORT, Server, World};
use crate::yaml;
use serde_json::json;
use sidestep_testkit::Pod;

fn pod(name: &str, of: &Pod) -> serde_json::Value {
    json!({"metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
           "spec": {"containers": [{"name": "c", "ports": [{"name": "http", "containerPort": 8080}]}]}, "status": {"podIPs": [{"ip": of.v4}]}})
}

#[test]
fn labels_come_from_the_server_and_policies_from_files() {
    let (mut node, world) = (Node::new(), World::new());
    let [web, db, stranger] = [(); 3].map(|()| node.routed());
    let _server = server(&db);
    for (name, one) in [("web", &web), ("stranger", &stranger)] {
        world.put(PODS, pod(name, one));
    }
    world.put(NAMESPACES, json!({"metadata": {"name": "default"}}));
    node.file("db.yaml", &yaml::labelled("db", &db, "{app: db}"));
    node.file("policy.yaml", &yaml::policy("db", super::world::ONLY_WEB));
    let _api = Server::start(&world, &node.testbed.node);
    let (kubeconfig, captures) = (node.kubeconfig(PORT), node.services());
    node.start_with(&["--kubeconfig", kubeconfig.to_str().unwrap(), "--captures", captures.to_str().unwrap()]);
    assert!(call(&web, &db).is_ok() && is_refused(&stranger, &db));
    // The pod is deleted, and another one gets its address.
    world.delete(PODS, "web");
    node.wait(|_| is_refused(&web, &db));
    world.put(PODS, pod("web", &stranger));
    world.delete(PODS, "stranger");
    node.wait(|_| call(&stranger, &db).is_ok());
    assert!(is_refused(&web, &db));
}

#[test]
fn network_policies_come_from_the_server() {
    let (mut node, world) = (Node::new(), World::new());
    let [web, db, stranger] = [(); 3].map(|()| node.routed());
    let _servers = [server(&db), server(&web)];
    for (name, one) in [("web", &web), ("stranger", &stranger), ("db", &db)] {
        world.put(PODS, pod(name, one));
    }
    world.put(NAMESPACES, json!({"metadata": {"name": "default", "labels": {"team": "red"}}}));
    let policy = |selector| {
        json!({"metadata": {"name": "db", "namespace": "default"}, "spec": {
            "podSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["db"]}]},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [{"namespaceSelector": selector, "podSelector": {"matchLabels": {"app": "web"}}}],
                         "ports": [{"port": "http"}]}]}})
    };
    world.put(NETWORK_POLICIES, policy(json!({"matchLabels": {"team": "red"}})));
    node.file("db.yaml", &yaml::labelled("db", &db, "{app: db}"));
    let _api = Server::start(&world, &node.testbed.node);
    let (kubeconfig, captures) = (node.kubeconfig(PORT), node.services());
    let options = ["--kubeconfig", kubeconfig.to_str().unwrap(), "--captures", captures.to_str().unwrap()];
    node.start_with(&[&options[..], &["--network-policies"]].concat());
    assert!(call(&web, &db).is_ok() && is_refused(&stranger, &db) && is_refused(&db, &web));
    let known = node.policies().policies.remove(0);
    assert_eq!((known.name.as_str(), &known.expressions[..]), ("networkpolicy/db", &["app in (db)".to_string()][..]));
    let rule = "ingress 1: allow TCP http from pods app=web of namespaces team=red";
    assert!(known.rules.contains(&rule.to_string()), "{:?}", known.rules);
    // The namespace gets another label, and the policy asks for that one.
    world.put(NAMESPACES, json!({"metadata": {"name": "default", "labels": {"team": "blue"}}}));
    node.wait(|_| is_refused(&web, &db));
    world.put(NETWORK_POLICIES, policy(json!({"matchLabels": {"team": "blue"}})));
    node.wait(|_| call(&web, &db).is_ok());
    // Files, which have no NetworkPolicies here, take none of the server's away.
    node.file("other.yaml", &yaml::policy("other", "select: {matchLabels: {app: other}}"));
    node.wait(|node| node.policies().policies.len() == 2);
    assert!(is_refused(&stranger, &db));
    world.delete(NETWORK_POLICIES, "db");
    node.wait(|_| call(&stranger, &db).is_ok() && call(&db, &web).is_ok());
}

#[test]
fn where_pods_may_not_be_seen_services_go_on_and_only_captures_have_names() {
    let (mut node, world) = (Node::new(), World::new());
    let [web, db] = [(); 2].map(|()| node.routed());
    let _server = server(&db);
    world.put(PODS, pod("web", &web));
    world.refuse(PODS, true);
    node.file("db.yaml", &yaml::labelled("db", &db, "{app: db}"));
    node.file("policy.yaml", &yaml::policy("db", super::world::ONLY_WEB));
    let _api = Server::start(&world, &node.testbed.node);
    let (kubeconfig, captures) = (node.kubeconfig(PORT), node.services());
    node.start_with(&["--kubeconfig", kubeconfig.to_str().unwrap(), "--captures", captures.to_str().unwrap()]);
    assert!(is_refused(&web, &db));
    assert!(node.check().troubles.iter().any(|trouble| trouble.place == "Pods"), "{:?}", node.check());
    world.refuse(PODS, false);
    node.wait(|_| call(&web, &db).is_ok());
}
