//! A simulated API server as the source: it lists and watches, forgets its history, dies and comes back. tests/kube uses the real
//! one.

use crate::agent::{Load, Node, VIP, at, dial, server};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::stream;
use serde_json::{Value, json};
use sidestep_testkit::{Namespace, Pod};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Objects of all kinds, and the history of their changes.
pub struct World {
    inner: Mutex<Inner>,
    version: watch::Sender<u64>,
}

#[derive(Default)]
struct Inner {
    /// {kind, name} -> object
    objects: BTreeMap<(&'static str, String), Value>,
    events: Vec<Event>,
    /// Changes before this version are forgotten.
    oldest: u64,
    /// Kinds that the client may not read.
    refused: BTreeSet<&'static str>,
    /// Kinds that are answered after a delay.
    slow: BTreeSet<&'static str>,
}

#[derive(Clone)]
struct Event {
    version: u64,
    kind: &'static str,
    line: String,
}

pub const SERVICES: &str = "services";
pub const SLICES: &str = "endpointslices";
const NODES: &str = "nodes";
pub const PODS: &str = "pods";
pub const NAMESPACES: &str = "namespaces";

impl World {
    pub fn new() -> Arc<World> {
        Arc::new(World { inner: Mutex::default(), version: watch::Sender::new(1) })
    }

    pub fn put(&self, kind: &'static str, mut object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_string();
        let mut inner = self.inner.lock().unwrap();
        let version = *self.version.borrow() + 1;
        object["metadata"]["resourceVersion"] = version.to_string().into();
        let what = if inner.objects.contains_key(&(kind, name.clone())) { "MODIFIED" } else { "ADDED" };
        inner.happen(version, kind, what, &object);
        inner.objects.insert((kind, name), object);
        self.version.send_replace(version);
    }

    pub fn delete(&self, kind: &'static str, name: &str) {
        let mut inner = self.inner.lock().unwrap();
        let version = *self.version.borrow() + 1;
        let mut object = inner.objects.remove(&(kind, name.to_string())).expect("it is there");
        object["metadata"]["resourceVersion"] = version.to_string().into();
        inner.happen(version, kind, "DELETED", &object);
        self.version.send_replace(version);
    }

    pub fn refuse(&self, kind: &'static str, refused: bool) {
        let mut inner = self.inner.lock().unwrap();
        if refused {
            inner.refused.insert(kind)
        } else {
            inner.refused.remove(kind)
        };
    }

    /// Forgets the history: watchers that reconnect are told to list again.
    pub fn forget(&self) {
        let mut inner = self.inner.lock().unwrap();
        inner.oldest = *self.version.borrow();
        inner.events.clear();
    }

    fn list(&self, kind: &'static str) -> Value {
        let inner = self.inner.lock().unwrap();
        let items: Vec<_> = inner.objects.iter().filter(|((k, _), _)| *k == kind).map(|(_, object)| object).collect();
        json!({"metadata": {"resourceVersion": self.version.borrow().to_string()}, "items": items})
    }

    /// The changes since a version, one on each line.
    fn since(&self, kind: &'static str, version: u64) -> (u64, String) {
        let inner = self.inner.lock().unwrap();
        let now = *self.version.borrow();
        if version < inner.oldest {
            let gone = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410,
                              "reason": "Expired", "message": "too old resource version", "metadata": {}});
            return (now, json!({"type": "ERROR", "object": gone}).to_string() + "\n");
        }
        (now, inner.events.iter().filter(|e| e.kind == kind && e.version > version).map(|e| e.line.clone()).collect())
    }
}

impl Inner {
    fn happen(&mut self, version: u64, kind: &'static str, what: &str, object: &Value) {
        let line = json!({"type": what, "object": object}).to_string() + "\n";
        self.events.push(Event { version, kind, line });
    }
}

async fn answer(
    State(world): State<Arc<World>>,
    Path(kind): Path<String>,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    let kind = [SERVICES, SLICES, NODES, PODS, NAMESPACES]
        .into_iter()
        .find(|known| *known == kind)
        .expect("a kind that is watched");
    if world.inner.lock().unwrap().refused.contains(kind) {
        let message = format!("{kind} is forbidden: User \"agent\" cannot list resource \"{kind}\"");
        return failure(StatusCode::FORBIDDEN, "Forbidden", &message);
    }
    if world.inner.lock().unwrap().slow.contains(kind) {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    if !query.contains_key("watch") {
        return world.list(kind).to_string().into_response();
    }
    let from = query.get("resourceVersion").and_then(|version| version.parse().ok()).unwrap_or(0);
    let changes = world.version.subscribe();
    let lines = stream::unfold((world, from, changes), move |(world, from, mut changes)| async move {
        loop {
            let (now, lines) = world.since(kind, from);
            if !lines.is_empty() {
                return Some((Ok::<_, Infallible>(lines), (world, now, changes)));
            }
            changes.changed().await.ok()?;
        }
    });
    Body::from_stream(lines).into_response()
}

fn failure(code: StatusCode, reason: &str, message: &str) -> Response {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code.as_u16(),
                        "reason": reason, "metadata": {}, "message": message});
    (code, status.to_string()).into_response()
}

/// One object, whatever its namespace.
async fn one(State(world): State<Arc<World>>, Path((_, kind, name)): Path<(String, String, String)>) -> Response {
    let inner = world.inner.lock().unwrap();
    if inner.refused.contains(kind.as_str()) {
        return failure(StatusCode::FORBIDDEN, "Forbidden", &format!("{kind} is forbidden"));
    }
    match inner.objects.iter().find(|((known, called), _)| *known == kind && *called == name) {
        Some((_, object)) => object.to_string().into_response(),
        None => failure(StatusCode::NOT_FOUND, "NotFound", &format!("{kind} \"{name}\" not found")),
    }
}

/// The server of a world. On drop it dies with all its connections.
pub struct Server {
    runtime: Option<Runtime>,
}

pub const PORT: u16 = 8001;

impl Server {
    pub fn start(world: &Arc<World>, place: &Namespace) -> Server {
        Server::start_at(world, place, PORT)
    }

    pub fn start_at(world: &Arc<World>, place: &Namespace, port: u16) -> Server {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = place.run(|| std::net::TcpListener::bind(("127.0.0.1", port)).unwrap());
        listener.set_nonblocking(true).unwrap();
        let routes = Router::new()
            .route("/api/v1/{kind}", get(answer))
            .route("/api/v1/namespaces/{namespace}/{kind}/{name}", get(one))
            .route("/apis/discovery.k8s.io/v1/{kind}", get(answer))
            .with_state(world.clone());
        runtime.spawn(async move { axum::serve(tokio::net::TcpListener::from_std(listener).unwrap(), routes).await });
        Server { runtime: Some(runtime) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.runtime.take().unwrap().shutdown_timeout(Duration::from_secs(5));
    }
}

pub fn service(name: &str, ip: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
           "spec": {"clusterIPs": [ip], "ports": [{"port": 80, "protocol": "TCP"}]}})
}

pub fn slice<'a>(name: &str, pods: impl IntoIterator<Item = &'a Pod>) -> Value {
    let endpoint = |pod: &Pod| json!({"addresses": [pod.v4.to_string()], "hints": {"forZones": [{"name": "east"}]}});
    let endpoints: Vec<_> = pods.into_iter().map(endpoint).collect();
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
           "metadata": {"name": format!("{name}-1"), "namespace": "default", "labels": {"kubernetes.io/service-name": name}},
           "ports": [{"port": 8080, "protocol": "TCP"}], "endpoints": endpoints})
}

fn start(node: &mut Node) {
    let kubeconfig = node.kubeconfig(PORT);
    node.start_with(&["--kubeconfig", kubeconfig.to_str().unwrap()]);
}

#[test]
fn objects_of_an_api_server_are_followed() {
    let (mut node, world) = (Node::new(), World::new());
    let (client, pods) = (node.testbed.pod(), [node.testbed.pod(), node.testbed.pod()]);
    let _servers: Vec<_> = pods.iter().map(server).collect();
    world.put(SERVICES, service("web", VIP));
    world.put(SLICES, slice("web", [&pods[0]]));
    let _server = Server::start(&world, &node.testbed.node);
    start(&mut node);
    let reached = || client.namespace.run(|| dial(at(VIP, 80)));
    assert_eq!(reached().unwrap(), pods[0].v4);
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
    world.put(SERVICES, service("web", "10.96.0"));
    node.wait(|node| !node.status().unwrap().source.troubles.is_empty());
    let trouble = node.status().unwrap().source.troubles.remove(0);
    assert_eq!(trouble.place, "Service default/web");
    assert_eq!(trouble.what, "spec.clusterIPs[0]: \"10.96.0\" where an IP address is expected");
    assert!(reached().is_ok());
    world.put(SERVICES, service("web", VIP));
    node.wait(|node| node.check().is_well());
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
    world.inner.lock().unwrap().slow.insert(NODES);
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
