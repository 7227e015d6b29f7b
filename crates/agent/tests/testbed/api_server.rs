//! A simulated API server: it lists in pages and watches, forgets its history, dies and comes back. tests/kube uses the real one.

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, patch, post};
use futures_util::stream;
use serde_json::{Value, json};
use sidestep_testkit::{Namespace, Pod};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
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
    /// Pods that may not be evicted now.
    budgeted: BTreeSet<String>,
    /// {kind, field selector} of lists
    selectors: BTreeSet<(&'static str, String)>,
}

#[derive(Clone)]
struct Event {
    version: u64,
    kind: &'static str,
    /// Of a pod.
    node: Option<String>,
    line: String,
}

pub const SERVICES: &str = "services";
pub const SLICES: &str = "endpointslices";
pub const NODES: &str = "nodes";
pub const PODS: &str = "pods";
pub const NAMESPACES: &str = "namespaces";
pub const NETWORK_POLICIES: &str = "networkpolicies";
/// Kubernetes Events, which the agent writes.
pub const EVENTS: &str = "events";

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

    /// Kinds that are answered after a delay.
    pub fn slow(&self, kind: &'static str) {
        self.inner.lock().unwrap().slow.insert(kind);
    }

    /// No disruption budget permits the eviction of this pod, or one does again.
    pub fn keep(&self, pod: &str, is_kept: bool) {
        let mut inner = self.inner.lock().unwrap();
        if is_kept {
            inner.budgeted.insert(pod.into())
        } else {
            inner.budgeted.remove(pod)
        };
    }

    /// An object by its name, whatever its namespace.
    pub fn get(&self, kind: &'static str, name: &str) -> Option<Value> {
        self.inner.lock().unwrap().objects.get(&(kind, name.to_string())).cloned()
    }

    /// All objects of a kind.
    pub fn all(&self, kind: &'static str) -> Vec<Value> {
        let inner = self.inner.lock().unwrap();
        inner.objects.iter().filter(|((k, _), _)| *k == kind).map(|(_, object)| object.clone()).collect()
    }

    /// The selectors of all lists so far.
    pub fn selectors(&self) -> BTreeSet<(&'static str, String)> {
        self.inner.lock().unwrap().selectors.clone()
    }

    /// A page: `continue` is the name of the last object of the page before.
    fn list(&self, kind: &'static str, query: &HashMap<String, String>) -> Value {
        let mut inner = self.inner.lock().unwrap();
        inner.selectors.insert((kind, query.get("fieldSelector").cloned().unwrap_or_default()));
        let limit = query.get("limit").and_then(|limit| limit.parse().ok()).unwrap_or(usize::MAX);
        let after = query.get("continue").cloned().unwrap_or_default();
        let all =
            inner.objects.iter().filter(|((k, name), object)| *k == kind && *name > after && is_listed(object, query));
        let items: Vec<_> = all.take(limit).map(|(_, object)| object).collect();
        let last = items
            .last()
            .filter(|_| items.len() == limit)
            .map_or("", |object| object["metadata"]["name"].as_str().unwrap());
        json!({"metadata": {"resourceVersion": self.version.borrow().to_string(), "continue": last}, "items": items})
    }

    /// The changes since a version, one on each line. `node`: only of the pods there.
    fn since(&self, kind: &'static str, version: u64, node: Option<&str>) -> (u64, String) {
        let inner = self.inner.lock().unwrap();
        let now = *self.version.borrow();
        if version < inner.oldest {
            let gone = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410,
                              "reason": "Expired", "message": "too old resource version", "metadata": {}});
            return (now, line("ERROR", &gone));
        }
        let is_asked = |e: &&Event| e.kind == kind && e.version > version && is_there(e.node.as_deref(), node);
        (now, inner.events.iter().filter(is_asked).map(|e| e.line.clone()).collect())
    }
}

impl Inner {
    fn happen(&mut self, version: u64, kind: &'static str, what: &str, object: &Value) {
        let node = object["spec"]["nodeName"].as_str().map(str::to_owned);
        self.events.push(Event { version, kind, node, line: line(what, object) });
    }
}

/// An event of a watch, with its type before its object, as the real server writes it.
fn line(what: &str, object: &Value) -> String {
    format!("{{\"type\":\"{what}\",\"object\":{object}}}\n")
}

/// As far as the agent selects: pods that have not ended, on any node or on one.
fn is_listed(object: &Value, query: &HashMap<String, String>) -> bool {
    let selector = query.get("fieldSelector").map_or("", String::as_str);
    let is_alive = !selector.contains("status.phase!=Succeeded") || object["status"]["phase"] != "Succeeded";
    is_alive && is_there(object["spec"]["nodeName"].as_str(), node_of(query))
}

/// The node whose pods are asked for.
fn node_of(query: &HashMap<String, String>) -> Option<&str> {
    query.get("fieldSelector")?.split(',').find_map(|field| field.strip_prefix("spec.nodeName="))
}

fn is_there(node: Option<&str>, asked: Option<&str>) -> bool {
    asked.is_none() || node == asked
}

async fn answer(
    State(world): State<Arc<World>>,
    Path(kind): Path<String>,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    let kind = [SERVICES, SLICES, NODES, PODS, NAMESPACES, NETWORK_POLICIES]
        .into_iter()
        .find(|known| *known == kind)
        .expect("a kind that is watched");
    if world.inner.lock().unwrap().refused.contains(kind) {
        return forbidden(kind);
    }
    if world.inner.lock().unwrap().slow.contains(kind) {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    if !query.contains_key("watch") {
        return world.list(kind, &query).to_string().into_response();
    }
    let from = query.get("resourceVersion").and_then(|version| version.parse().ok()).unwrap_or(0);
    let (changes, node) = (world.version.subscribe(), node_of(&query).map(str::to_owned));
    let lines = stream::unfold((world, from, changes, node), move |(world, from, mut changes, node)| async move {
        loop {
            let (now, lines) = world.since(kind, from, node.as_deref());
            if !lines.is_empty() {
                return Some((Ok::<_, Infallible>(lines), (world, now, changes, node)));
            }
            changes.changed().await.ok()?;
        }
    });
    Body::from_stream(lines).into_response()
}

fn forbidden(kind: &str) -> Response {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403,
                        "reason": "Forbidden", "metadata": {},
                        "message": format!("{kind} is forbidden: User \"agent\" cannot list resource \"{kind}\"")});
    (StatusCode::FORBIDDEN, status.to_string()).into_response()
}

/// One pod, whatever its namespace.
async fn pod(State(world): State<Arc<World>>, Path((_, name)): Path<(String, String)>) -> Response {
    let kind = PODS;
    let inner = world.inner.lock().unwrap();
    if inner.refused.contains(kind) {
        return forbidden(kind);
    }
    match inner.objects.iter().find(|((known, called), _)| *known == kind && *called == name) {
        Some((_, object)) => object.to_string().into_response(),
        None => failure(StatusCode::NOT_FOUND, "NotFound"),
    }
}

/// A refusal by this code.
fn failure(code: StatusCode, reason: &str) -> Response {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code.as_u16(), "reason": reason,
                        "metadata": {}, "message": reason});
    (code, status.to_string()).into_response()
}

async fn node(State(world): State<Arc<World>>, Path(name): Path<String>) -> Response {
    if world.inner.lock().unwrap().refused.contains(NODES) {
        return forbidden(NODES);
    }
    world
        .get(NODES, &name)
        .map_or_else(|| failure(StatusCode::NOT_FOUND, "NotFound"), |node| node.to_string().into_response())
}

/// A merge patch, with the preconditions that the agent names.
fn patched(world: &World, kind: &'static str, name: &str, body: &str) -> Response {
    if world.inner.lock().unwrap().refused.contains(kind) {
        return forbidden(kind);
    }
    let Some(mut object) = world.get(kind, name) else { return failure(StatusCode::NOT_FOUND, "NotFound") };
    let patch: Value = serde_json::from_str(body).unwrap();
    for key in ["uid", "resourceVersion"] {
        let wanted = &patch["metadata"][key];
        if !wanted.is_null() && *wanted != object["metadata"][key] {
            return failure(StatusCode::CONFLICT, "Conflict");
        }
    }
    merge_into(&mut object, &patch);
    world.put(kind, object.clone());
    object.to_string().into_response()
}

/// RFC 7386.
fn merge_into(target: &mut Value, patch: &Value) {
    let Some(changes) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, change) in changes {
        if change.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            merge_into(&mut target[key], change);
        }
    }
}

async fn patch_node(State(world): State<Arc<World>>, Path(name): Path<String>, body: String) -> Response {
    patched(&world, NODES, &name, &body)
}

async fn patch_pod(State(world): State<Arc<World>>, Path((_, name)): Path<(String, String)>, body: String) -> Response {
    patched(&world, PODS, &name, &body)
}

/// A pod is gone at once.
async fn evict(State(world): State<Arc<World>>, Path((_, name)): Path<(String, String)>, body: String) -> Response {
    let eviction: Value = serde_json::from_str(&body).unwrap();
    let Some(pod) = world.get(PODS, &name) else { return failure(StatusCode::NOT_FOUND, "NotFound") };
    assert_eq!((&eviction["apiVersion"], &eviction["kind"]), (&json!("policy/v1"), &json!("Eviction")));
    if eviction["deleteOptions"]["preconditions"]["uid"] != pod["metadata"]["uid"] {
        return failure(StatusCode::CONFLICT, "Conflict");
    }
    if world.inner.lock().unwrap().budgeted.contains(&name) {
        return failure(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests");
    }
    world.delete(PODS, &name);
    let done = json!({"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201, "metadata": {}});
    (StatusCode::CREATED, done.to_string()).into_response()
}

/// An Event is created.
async fn create(State(world): State<Arc<World>>, body: String) -> Response {
    if world.inner.lock().unwrap().refused.contains(EVENTS) {
        return forbidden(EVENTS);
    }
    world.put(EVENTS, serde_json::from_str(&body).unwrap());
    body.into_response()
}

/// An Event happens again.
async fn merge(State(world): State<Arc<World>>, Path((_, name)): Path<(String, String)>, body: String) -> Response {
    assert!(world.all(EVENTS).iter().any(|event| event["metadata"]["name"] == name.as_str()), "there is no {name}");
    world.put(EVENTS, serde_json::from_str(&body).unwrap());
    body.into_response()
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
            .route("/api/v1/nodes/{name}", get(node).patch(patch_node))
            .route("/api/v1/namespaces/{namespace}/pods/{name}", get(pod).patch(patch_pod))
            .route("/api/v1/namespaces/{namespace}/pods/{name}/eviction", post(evict))
            .route("/apis/discovery.k8s.io/v1/{kind}", get(answer))
            .route("/apis/networking.k8s.io/v1/{kind}", get(answer))
            .route("/apis/events.k8s.io/v1/namespaces/{namespace}/events", post(create))
            .route("/apis/events.k8s.io/v1/namespaces/{namespace}/events/{name}", patch(merge))
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
