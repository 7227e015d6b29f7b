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

/// To a new agent they are not "none": it would open what an earlier agent has closed.
#[test]
fn network_policies_that_a_new_agent_cannot_read_stay_in_force() {
    let (mut node, world) = (Node::new(), World::new());
    let [web, db, stranger] = [(); 3].map(|()| node.routed());
    let _server = server(&db);
    for (name, one) in [("web", &web), ("stranger", &stranger), ("db", &db)] {
        world.put(PODS, pod(name, one));
    }
    world.put(NAMESPACES, json!({"metadata": {"name": "default"}}));
    let policy = |types| {
        json!({"metadata": {"name": "db", "namespace": "default"}, "spec": {
            "podSelector": {"matchLabels": {"app": "db"}}, "policyTypes": [types],
            "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "web"}}}]}]}})
    };
    let (right, wrong) = (policy("Ingress"), policy("Sideways"));
    world.put(NETWORK_POLICIES, right.clone());
    node.file("db.yaml", &yaml::labelled("db", &db, "{app: db}"));
    let api = Server::start(&world, &node.testbed.node);
    let (kubeconfig, captures) = (node.kubeconfig(PORT), node.services());
    let options = ["--kubeconfig", kubeconfig.to_str().unwrap(), "--captures", captures.to_str().unwrap()];
    let options = [&options[..], &["--network-policies"]].concat();
    node.start_with(&options);
    let is_enforced = || call(&web, &db).is_ok() && is_refused(&stranger, &db);
    assert!(is_enforced());
    let stays = "Capture default/db: policies are as an earlier agent left them";
    let is_kept =
        |node: &Node| node.status().is_ok() && node.check().problems.iter().any(|problem| problem.contains(stays));
    // The permission is missing.
    node.kill();
    world.refuse(NETWORK_POLICIES, true);
    node.spawn(&options);
    let missing = "give its ClusterRole the verbs list and watch for networkpolicies";
    node.wait(|node| is_kept(node) && node.check().troubles.iter().any(|one| one.what.contains(missing)));
    assert!(is_enforced() && !node.status().unwrap().source.listed && node.log().contains(missing));
    assert_eq!(node.get("/readyz").split(' ').nth(1), Some("503"));
    world.refuse(NETWORK_POLICIES, false);
    node.wait(|node| node.status().unwrap().source.listed && node.check().is_well());
    assert!(is_enforced());
    // The server is away.
    node.kill();
    drop(api);
    node.spawn(&options);
    node.wait(is_kept);
    assert!(is_enforced());
    let _api = Server::start(&world, &node.testbed.node);
    node.wait(|node| node.status().unwrap().source.listed && node.check().is_well());
    assert!(is_enforced());
    // The object cannot be read, and then it can.
    node.kill();
    world.put(NETWORK_POLICIES, wrong.clone());
    node.start_with(&options);
    node.wait(is_kept);
    assert!(is_enforced());
    world.put(NETWORK_POLICIES, right);
    node.wait(|node| node.check().is_well());
    assert!(is_enforced());
    // The object cannot be read, and then it is gone.
    node.kill();
    world.put(NETWORK_POLICIES, wrong);
    node.start_with(&options);
    node.wait(is_kept);
    assert!(is_enforced());
    world.delete(NETWORK_POLICIES, "db");
    node.wait(|_| call(&stranger, &db).is_ok());
}
