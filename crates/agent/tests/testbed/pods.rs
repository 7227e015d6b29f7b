//! Thousands of pods on other nodes: what the agent keeps of them, and when it does not read them.

use crate::agent::{Node, VIP};
use crate::api_server::{NAMESPACES, PODS, PORT, SERVICES, SLICES, Server, World, service};
use crate::yaml;
use serde_json::{Value, json};
use std::sync::Arc;

const ALL: &str = "status.phase!=Succeeded,status.phase!=Failed";
const OF_NODE: &str = "spec.nodeName=node,status.phase!=Succeeded,status.phase!=Failed";
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
    assert!(selectors.contains(&(PODS, ALL.into())), "{selectors:?}");
    // A change of one pod is followed.
    let last = format!("app-{}-{}", (MANY - 1) / 20, MANY - 1);
    world.delete(PODS, &last);
    node.wait(|node| node.check().is_well());
}

/// An agent of this API server that admits pods, or reads documents of pods: `source` is the option for the directory.
fn node_with(world: &Arc<World>, source: &str, more: &[&str]) -> (Server, Node) {
    let mut node = Node::new();
    let api = Server::start(world, &node.testbed.node);
    let directory = if source == "--captures" { node.services() } else { node.directory.path().join("admissions") };
    let kubeconfig = node.kubeconfig(PORT);
    let own = ["--kubeconfig", kubeconfig.to_str().unwrap(), source, directory.to_str().unwrap()];
    node.start_with(&[&own[..], more].concat());
    (api, node)
}

/// The selectors of all lists of pods so far.
fn asked_for(world: &World) -> Vec<String> {
    world.selectors().into_iter().filter(|(kind, _)| *kind == PODS).map(|(_, selector)| selector).collect()
}

/// Rules of policies name peers on any node, documents may be policies at any time, and `--watch` names both ends.
#[test]
fn pods_of_other_nodes_are_read_only_where_something_needs_them() {
    let cases: [(&str, &[&str], &str); 4] = [
        ("--admissions", &[], OF_NODE),
        ("--admissions", &["--network-policies"], ALL),
        ("--admissions", &["--watch"], ALL),
        ("--captures", &[], ALL),
    ];
    for (source, more, expected) in cases {
        let world = World::new();
        let _running = node_with(&world, source, more);
        assert_eq!(asked_for(&world), [expected], "{source} {more:?}");
    }
}

/// Another program balances Services: the server is not asked for any.
#[test]
fn services_that_are_left_to_others_are_not_read() {
    let world = World::new();
    world.put(SERVICES, service("web", VIP));
    let (_api, node) = node_with(&world, "--admissions", &["--no-services"]);
    let asked = world.selectors();
    assert!(!asked.iter().any(|(kind, _)| [SERVICES, SLICES].contains(kind)), "{asked:?}");
    assert!(node.show("web").is_err());
}

#[test]
fn services_that_an_earlier_agent_has_balanced_are_left_to_others() {
    let world = World::new();
    world.put(SERVICES, service("web", VIP));
    let (_api, mut node) = node_with(&world, "--admissions", &[]);
    let used = |node: &Node| {
        let tables = node.status().unwrap().tables;
        tables.iter().find(|fill| fill.table == "frontends").unwrap().used
    };
    node.wait(|node| used(node) > 0);
    node.kill();
    // Nothing else is read, either.
    let kubeconfig = node.kubeconfig(PORT);
    node.start_with(&["--kubeconfig", kubeconfig.to_str().unwrap(), "--no-services", "--zone", "a"]);
    node.wait(|node| used(node) == 0);
}

/// Whether a pod of another node requires its proxy decides whether its clients here are led around it.
#[test]
fn pods_of_other_nodes_are_read_from_the_first_service_on_that_asks_for_the_bypass() {
    let world = World::new();
    world.put(PODS, pod(0));
    let (_api, mut node) = node_with(&world, "--admissions", &[]);
    world.put(SERVICES, service("plain", "10.96.0.99"));
    node.wait(|node| node.show("plain").is_ok());
    assert_eq!(asked_for(&world), [OF_NODE]);
    let mut asking = service("web", VIP);
    asking["metadata"]["annotations"] = json!({"sidestep.dev/bypass-proxy": "true"});
    world.put(SERVICES, asking);
    node.wait(|node| node.show("web").is_ok_and(|shown| shown.bypass.is_some()));
    assert_eq!(asked_for(&world), [OF_NODE, ALL], "in alphabetical order");
}
