//! An API server as the source.

use crate::agent::{Load, Node, VIP, at, dial, server};
use crate::api_server::{NODES, PORT, SERVICES, SLICES, Server, World, service, slice};
use serde_json::{Value, json};
use sidestep_testkit::Pod;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

fn start(node: &mut Node) {
    let kubeconfig = node.kubeconfig(PORT);
    node.start_with(&["--kubeconfig", kubeconfig.to_str().unwrap()]);
}

/// An agent that follows a server with these objects and the Service `web` of the first of two pods, as `made` has it. Another pod
/// reaches it. The last value keeps programs and server alive.
fn with_web(world: &Arc<World>, made: fn(Value) -> Value) -> (Node, Pod, [Pod; 2], impl Sized + use<>) {
    let mut node = Node::new();
    let (client, pods) = (node.testbed.pod(), [node.testbed.pod(), node.testbed.pod()]);
    let programs = [server(&pods[0]), server(&pods[1])];
    world.put(SERVICES, made(service("web", VIP)));
    world.put(SLICES, made(slice("web", [&pods[0]])));
    let of_objects = Server::start(world, &node.testbed.node);
    start(&mut node);
    assert_eq!(reached(&client).unwrap(), pods[0].v4);
    (node, client, pods, (of_objects, programs))
}

/// Who answers this pod at the Service's address.
fn reached(client: &Pod) -> std::io::Result<IpAddr> {
    client.namespace.run(|| dial(at(VIP, 80)))
}

#[test]
fn objects_of_an_api_server_are_followed() {
    let world = World::new();
    let (mut node, client, pods, _alive) = with_web(&world, |object| object);
    let reached = || reached(&client);
    world.put(SLICES, slice("web", [&pods[1]]));
    node.wait(|_| reached().is_ok_and(|who| who == pods[1].v4));
    world.delete(SLICES, "web-1");
    node.wait(|_| reached().is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused));
    world.delete(SERVICES, "web");
    node.wait(|_| reached().is_err_and(|error| error.kind() != ErrorKind::ConnectionRefused));
    // An invalid object is reported, and its valid predecessor stays in force.
    world.put(SERVICES, service("web", VIP));
    world.put(SLICES, slice("web", [&pods[0]]));
    node.wait(|_| reached().is_ok());
    let mut wrong = service("web", VIP);
    wrong["spec"]["sessionAffinity"] = "Sticky".into();
    world.put(SERVICES, wrong);
    node.wait(|node| !node.status().unwrap().source.troubles.is_empty());
    let trouble = node.status().unwrap().source.troubles.remove(0);
    assert_eq!(trouble.place, "Service default/web");
    assert_eq!(trouble.what, "spec.sessionAffinity: \"Sticky\" where None or ClientIP is expected");
    assert!(reached().is_ok());
    world.put(SERVICES, service("web", VIP));
    node.wait(|node| node.check().is_well());
}

/// The object with what its owner may write there, and the agent's types cannot hold.
fn poisoned(mut object: Value) -> Value {
    let deep = (0..200).fold(json!({}), |inner, _| json!({"f:x": inner}));
    object["metadata"]["managedFields"] = json!([{"manager": "m", "operation": "Update", "apiVersion": "v1",
                                                  "time": "9999-12-31T23:59:59Z", "fieldsType": "FieldsV1",
                                                  "fieldsV1": deep}]);
    object
}

#[test]
fn managed_fields_that_nobody_can_read_hide_nothing() {
    let world = World::new();
    world.put(NODES, poisoned(labelled("east")));
    let (mut node, client, pods, _alive) = with_web(&world, poisoned);
    let reached = || reached(&client);
    assert_eq!(node.status().unwrap().zone.as_deref(), Some("east"));
    // The running agent hears of a change, and of the end: the next Service with the address is not shut out.
    world.put(SERVICES, poisoned(service("web", VIP)));
    world.delete(SERVICES, "web");
    world.put(SERVICES, service("web2", VIP));
    world.put(SLICES, slice("web2", [&pods[1]]));
    node.wait(|_| reached().is_ok_and(|who| who == pods[1].v4));
    assert_eq!(node.status().unwrap().source.troubles, []);
}

/// The API server gives an address to the next Service as soon as one has given it back, whatever else the object says.
#[test]
fn a_service_does_not_keep_an_address_that_it_has_given_back() {
    let world = World::new();
    let (mut node, client, pods, _alive) = with_web(&world, |object| object);
    let reached = || reached(&client);
    let mut alias = service("web", VIP);
    alias["spec"] = json!({"type": "ExternalName", "externalName": "a.example", "externalIPs": ["010.0.0.1"]});
    world.put(SERVICES, alias);
    world.put(SERVICES, service("web2", VIP));
    world.put(SLICES, slice("web2", [&pods[1]]));
    node.wait(|_| reached().is_ok_and(|who| who == pods[1].v4));
    // One that cannot be read at all.
    let mut wrong = service("web2", "10.96.0.99");
    wrong["spec"]["sessionAffinity"] = "Sticky".into();
    world.put(SERVICES, wrong);
    world.put(SERVICES, service("web3", VIP));
    world.put(SLICES, slice("web3", [&pods[0]]));
    node.wait(|_| reached().is_ok_and(|who| who == pods[0].v4));
}

/// Annotations are texts of tenants: a wrong one neither freezes the object nor counts as a problem of the node.
#[test]
fn a_wrong_annotation_is_a_remark_of_its_service() {
    let (mut node, world) = (Node::new(), World::new());
    let pods = [node.testbed.pod(), node.testbed.pod()];
    let mut web = service("web", VIP);
    web["metadata"]["annotations"] = json!({"sidestep.dev/selection": "best"});
    world.put(SERVICES, web);
    let with_weights = |pods: &[Pod]| {
        let mut slice = slice("web", pods);
        slice["metadata"]["annotations"] = json!({"sidestep.dev/weights": "all=3"});
        slice
    };
    world.put(SLICES, with_weights(&pods[..1]));
    let _server = Server::start(&world, &node.testbed.node);
    start(&mut node);
    assert!(node.check().is_well());
    world.put(SLICES, with_weights(&pods));
    node.wait(|node| node.show("web").unwrap().ports[0].backend_count == 2);
    let left = node.show("web").unwrap().left;
    assert!(left[0].starts_with("annotation sidestep.dev/selection \"best\": random, "), "{left:?}");
    assert!(
        left[1].starts_with("EndpointSlice default/web-1: annotation sidestep.dev/weights \"all=3\": "),
        "{left:?}"
    );
    assert_eq!(node.status().unwrap().source.troubles, []);
}

#[test]
fn a_server_that_dies_changes_nothing_and_is_followed_again() {
    let (mut node, world) = (Node::new(), World::new());
    let (clients, pods) = ([node.testbed.pod()], [node.testbed.pod(), node.testbed.pod()]);
    let _servers: Vec<_> = pods.iter().map(server).collect();
    world.put(SERVICES, service("web", VIP));
    world.put(SERVICES, service("other", "10.96.0.11"));
    world.put(SLICES, slice("web", [&pods[0]]));
    let first = Server::start(&world, &node.testbed.node);
    start(&mut node);
    let load = Load::start(&clients);
    drop(first);
    // One problem each for Services, EndpointSlices and the Node.
    node.wait(|node| node.status().unwrap().source.troubles.len() == 3);
    load.wait_for(50);
    // Meanwhile objects change, unseen by watchers, and the history is lost.
    world.put(SLICES, slice("web", &pods));
    world.delete(SERVICES, "other");
    world.put(SERVICES, service("new", "10.96.0.12"));
    world.forget();
    let _second = Server::start(&world, &node.testbed.node);
    node.wait(|node| node.show("new").is_ok() && node.show("other").is_err());
    node.wait(|node| node.show("web").unwrap().ports[0].backend_count == 2);
    node.wait(|node| node.check().is_well());
    load.wait_for(50);
    let (failures, done) = load.stop();
    assert!(failures.is_empty(), "{} of {done}: {:?}", failures.len(), failures.first());
}

fn labelled(zone: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node",
           "metadata": {"name": "node", "labels": {"topology.kubernetes.io/zone": zone}}})
}

/// Otherwise connections would cross zones in the first moments of every agent.
#[test]
fn hints_count_from_the_beginning() {
    let (mut node, world) = (Node::new(), World::new());
    world.put(NODES, labelled("east"));
    world.slow(NODES);
    let _server = Server::start(&world, &node.testbed.node);
    start(&mut node);
    assert_eq!(node.status().unwrap().zone.as_deref(), Some("east"));
}

#[test]
fn a_server_that_refuses_nodes_is_a_trouble_that_stops_nothing() {
    let (mut node, world) = (Node::new(), World::new());
    let pod = node.testbed.pod();
    world.put(SERVICES, service("web", VIP));
    world.put(SLICES, slice("web", [&pod]));
    world.put(NODES, labelled("east"));
    world.refuse(NODES, true);
    let _server = Server::start(&world, &node.testbed.node);
    start(&mut node);
    assert_eq!(node.show("web").unwrap().ports[0].backend_count, 1);
    let troubles = node.status().unwrap().source.troubles;
    assert_eq!(troubles.iter().map(|trouble| trouble.place.as_str()).collect::<Vec<_>>(), ["Node node"]);
    assert!(troubles[0].what.starts_with("the agent's account may not list nodes: give"), "{troubles:?}");
    world.refuse(NODES, false);
    node.wait(|node| node.check().is_well());
    assert_eq!(node.status().unwrap().zone.as_deref(), Some("east"));
    assert_eq!(node.log().matches("is well again").count(), 1, "{}", node.log());
}

/// One line for each kind, however often the request is repeated: it says what is missing, without Rust's debug output.
#[test]
fn missing_rights_are_said_once_and_clearly() {
    let (mut node, world) = (Node::new(), World::new());
    for kind in [SERVICES, SLICES] {
        world.refuse(kind, true);
    }
    let _server = Server::start(&world, &node.testbed.node);
    let kubeconfig = node.kubeconfig(PORT);
    node.spawn(&["--kubeconfig", kubeconfig.to_str().unwrap()]);
    node.wait(|node| node.status().is_ok_and(|status| status.source.troubles.len() == 2));
    // The agent repeats the request meanwhile.
    std::thread::sleep(Duration::from_secs(3));
    let log = node.log();
    for (place, resource, group) in
        [("Services", "services", "the core group"), ("EndpointSlices", "endpointslices", "the group discovery.k8s.io")]
    {
        let line = format!(
            "{place}: the agent's account may not list {resource}: give its ClusterRole the verbs list and watch for \
             {resource} of {group} ({resource} is forbidden: User"
        );
        assert_eq!(log.matches(&line).count(), 1, "{line} is not once in\n{log}");
        assert!(node.check().troubles.iter().any(|t| line.starts_with(&format!("{}: {}", t.place, &t.what[..60]))));
    }
    assert!(!log.contains("Status {") && log.lines().filter(|line| line.contains("forbidden")).count() == 2, "{log}");
    world.refuse(SERVICES, false);
    world.refuse(SLICES, false);
    node.wait_until_attached();
    node.wait(|node| node.check().is_well());
}

#[test]
fn hints_count_for_the_zone_that_the_node_is_labelled_with() {
    let (mut node, world) = (Node::new(), World::new());
    let (near, far) = (node.testbed.pod(), node.testbed.pod());
    world.put(SERVICES, service("web", VIP));
    world.put(SLICES, slice("web", [&near]));
    let mut other = slice("web", [&far]);
    other["metadata"]["name"] = "web-2".into();
    other["endpoints"][0]["hints"]["forZones"][0]["name"] = "west".into();
    world.put(SLICES, other);
    let _server = Server::start(&world, &node.testbed.node);
    start(&mut node);
    assert_eq!(node.show("web").unwrap().ports[0].backend_count, 2);
    for (zone, pod) in [("east", &near), ("west", &far)] {
        world.put(NODES, labelled(zone));
        node.wait(|node| {
            let port = node.show("web").unwrap().ports.remove(0);
            port.backends.len() == 1 && port.backends[0].address.ip() == pod.v4
        });
    }
    world.delete(NODES, "node");
    world.put(NODES, labelled("nowhere"));
    node.wait(|node| node.show("web").unwrap().ports[0].backend_count == 2);
}
