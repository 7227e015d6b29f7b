//! Pods that were there before the CNI plugin, and the taint of a node whose agent is not ready.

use crate::admission::Cluster;
use crate::agent::Node;
use crate::api_server::{EVENTS, NODES, PODS, PORT, SERVICES, Server, World};
use serde_json::{Value, json};

/// A pod of this node that runs.
fn running(name: &str, changes: &[(&str, Value)]) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "labels": {"app": name}, "annotations": {},
                     "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": "r", "controller": true}]},
        "spec": {"nodeName": "node", "containers": [{"name": "app"}]},
        "status": {"phase": "Running", "podIPs": [{"ip": "10.244.9.9"}],
                   "containerStatuses": [{"name": "app", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
                                          "state": {"running": {}}}]},
    });
    for (at, value) in changes {
        *pod.pointer_mut(at).unwrap() = value.clone();
    }
    pod
}

const LABEL: &str = "sidestep.dev/not-admitted";

fn is_labelled(world: &World, pod: &str) -> bool {
    world.get(PODS, pod).unwrap()["metadata"]["labels"][LABEL] == "true"
}

#[test]
fn pods_that_were_there_before_are_labelled_until_they_are_admitted() {
    let mut cluster = Cluster::new(&["--repair", "label", "--repair-after", "1"]);
    let (pod, world) = (cluster.node.routed(), cluster.world.clone());
    world.put(PODS, running("admitted", &[]));
    assert!(cluster.admit("admitted", &pod).is_ok());
    world.put(PODS, running("hosts", &[("/spec", json!({"nodeName": "node", "hostNetwork": true, "containers": []}))]));
    world.put(PODS, running("kept", &[("/metadata/annotations", json!({"sidestep.dev/repair": "disabled"}))]));
    // The agent's types cannot hold the time, and need not.
    let mut poisoned = running("poisoned", &[]);
    poisoned["metadata"]["managedFields"] = json!([{"manager": "m", "time": "9999-12-31T23:59:59Z"}]);
    world.put(PODS, poisoned);
    world.put(PODS, running("before", &[]));
    cluster.node.wait(|_| is_labelled(&world, "before") && is_labelled(&world, "poisoned"));
    let told = |world: &World| world.all(EVENTS).into_iter().find(|event| event["reason"] == "NotAdmitted");
    cluster.node.wait(|_| told(&world).is_some());
    let regarding = told(&world).unwrap()["regarding"]["name"].clone();
    assert!(["before", "poisoned"].contains(&regarding.as_str().unwrap()), "{regarding}");
    // All were seen as often as that one.
    for other in ["admitted", "hosts", "kept"] {
        assert!(!is_labelled(&world, other), "{other}");
    }
    let second = cluster.node.routed();
    assert!(cluster.admit("before", &second).is_ok());
    cluster.node.wait(|_| !is_labelled(&world, "before"));
}

#[test]
fn pods_that_were_there_before_are_evicted_if_somebody_starts_them_again() {
    let mut cluster = Cluster::new(&["--repair", "delete", "--repair-after", "1"]);
    let world = cluster.world.clone();
    world.keep("budgeted", true);
    world.put(PODS, running("budgeted", &[]));
    world.put(PODS, running("bare", &[("/metadata/ownerReferences", json!([]))]));
    world.put(PODS, running("before", &[]));
    cluster.node.wait(|_| world.get(PODS, "before").is_none());
    cluster.node.wait(|node| node.log().contains("budget permits no eviction now"));
    assert!(world.get(PODS, "budgeted").is_some() && world.get(PODS, "bare").is_some());
    world.keep("budgeted", false);
    cluster.node.wait(|_| world.get(PODS, "budgeted").is_none());
    assert!(world.get(PODS, "bare").is_some());
}

fn tainted() -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node", "labels": {}},
           "spec": {"taints": [{"key": "other", "effect": "NoSchedule"},
                               {"key": "sidestep.dev/agent-not-ready", "effect": "NoSchedule"}]}})
}

#[test]
fn the_nodes_taint_goes_when_the_agent_is_ready() {
    let (mut node, world) = (Node::new(), World::new());
    world.put(NODES, tainted());
    world.refuse(SERVICES, true);
    let _server = Server::start(&world, &node.testbed.node);
    let kubeconfig = node.kubeconfig(PORT);
    node.spawn(&["--kubeconfig", kubeconfig.to_str().unwrap(), "--remove-taint"]);
    node.wait(|node| node.status().is_ok_and(|status| !status.source.troubles.is_empty()));
    let keys = |world: &World| -> Vec<Value> {
        let node = world.get(NODES, "node").unwrap();
        node["spec"]["taints"].as_array().unwrap().iter().map(|taint| taint["key"].clone()).collect()
    };
    assert_eq!(keys(&world), ["other", "sidestep.dev/agent-not-ready"]);
    world.refuse(SERVICES, false);
    node.wait(|_| keys(&world) == ["other"]);
}

#[test]
fn an_agent_that_may_not_change_its_node_says_so_once() {
    let (mut node, world) = (Node::new(), World::new());
    world.put(NODES, tainted());
    world.refuse(NODES, true);
    let _server = Server::start(&world, &node.testbed.node);
    let kubeconfig = node.kubeconfig(PORT);
    node.spawn(&["--kubeconfig", kubeconfig.to_str().unwrap(), "--remove-taint"]);
    let said = |node: &Node| node.log().matches("may not get nodes: give its ClusterRole that verb").count();
    node.wait(|node| said(node) > 0);
    world.refuse(NODES, false);
    node.wait(|_| world.get(NODES, "node").unwrap()["spec"]["taints"].as_array().unwrap().len() == 1);
    assert_eq!(said(&node), 1);
}
