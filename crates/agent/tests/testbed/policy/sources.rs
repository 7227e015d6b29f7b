//! Policies from a directory, and pods from an API server.

use super::world::{call, is_refused};
use crate::agent::{Node, server};
use crate::cluster::{NAMESPACES, PODS, PORT, Server, World};
use crate::yaml;
use serde_json::json;
use sidestep_testkit::Pod;

fn pod(name: &str, of: &Pod) -> serde_json::Value {
    json!({"metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
           "spec": {"containers": []}, "status": {"podIPs": [{"ip": of.v4}]}})
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
