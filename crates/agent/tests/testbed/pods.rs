//! Thousands of pods on other nodes: what the agent keeps of them.

use crate::agent::Node;
use crate::api_server::{NAMESPACES, PODS, PORT, Server, World};
use crate::yaml;
use serde_json::{Value, json};

const MANY: usize = 10_000;
/// Of the agent's memory, for 10,000 pods of other nodes in 500 kinds: what is kept, and one page of a list.
const LIMIT_KIB: u64 = 40 * 1024;

/// As large as pods are that a deployment makes: 10 KiB.
fn pod(number: usize) -> Value {
    let (kind, address) = (number / 20, format!("10.{}.{}.{}", 1 + number / 65536, number / 256 % 256, number % 256));
    let variables: Vec<Value> =
        (0..8).map(|n| json!({"name": format!("VARIABLE_{n}"), "value": "x".repeat(600)})).collect();
    json!({
        "metadata": {
            "name": format!("app-{kind}-{number}"), "namespace": format!("team-{}", kind % 50), "uid": format!("uid-{number}"),
            "labels": {"app.kubernetes.io/name": format!("app-{kind}"), "app.kubernetes.io/version": "1.2.3",
                       "app.kubernetes.io/part-of": "everything", "pod-template-hash": format!("{kind:x}f00")},
            "annotations": {"example.org/configuration": "x".repeat(500)},
            "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsType": "FieldsV1",
                               "fieldsV1": {"f:status": {"f:conditions": {"x": "x".repeat(2000)}}}}],
        },
        "spec": {
            "nodeName": format!("other-{}", number % 300),
            "containers": [{"name": "app", "image": "example.org/app:1", "env": variables,
                            "ports": [{"name": "http", "containerPort": 8080}]}],
            "volumes": [{"name": "configuration", "configMap": {"name": "configuration"}}],
        },
        "status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
                   "conditions": [{"type": "Ready", "status": "True", "message": "x".repeat(500)}]},
    })
}

#[test]
fn of_ten_thousand_pods_of_other_nodes_little_is_kept() {
    let (mut node, world) = (Node::new(), World::new());
    world.put(NAMESPACES, json!({"metadata": {"name": "default"}}));
    let _api = Server::start(&world, &node.testbed.node);
    let (kubeconfig, captures) = (node.kubeconfig(PORT), node.services());
    let policy = "select: {matchLabels: {app: db}}, ingress: [{action: allow, from: [{namespace: team-1}]}]";
    node.file("policy.yaml", &yaml::policy("db", policy));
    let options = ["--kubeconfig", kubeconfig.to_str().unwrap(), "--captures", captures.to_str().unwrap()];
    node.start_with(&options);
    let without = node.resident_kib();
    node.stop();
    for number in 0..MANY {
        world.put(PODS, pod(number));
    }
    let size = pod(0).to_string().len();
    let mut ended = pod(MANY);
    ended["status"]["phase"] = "Succeeded".into();
    world.put(PODS, ended);
    node.start_with(&options);
    let with = node.resident_kib();
    println!("{MANY} pods of {size} bytes: {with} KiB, {without} KiB without pods");
    assert!(with - without < LIMIT_KIB, "{with} KiB, {without} KiB without pods");
    let selectors = world.selectors();
    assert!(selectors.contains(&(PODS, "status.phase!=Succeeded,status.phase!=Failed".into())), "{selectors:?}");
    // A change of one pod is followed.
    let last = format!("app-{}-{}", (MANY - 1) / 20, MANY - 1);
    world.delete(PODS, &last);
    node.wait(|node| node.check().is_well());
}
