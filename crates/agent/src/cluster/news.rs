//! Events of an API server's objects: list, then watch; again, with growing pauses, when that fails.

use super::assigned::Assigned;
use super::failure::Failure;
use super::reduced::{ALIVE, Reduced, Reducible};
use backon::ExponentialBuilder;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt, stream};
use k8s_openapi::api::core::v1::{self as core, Namespace, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::runtime::watcher;
use kube::runtime::watcher::{Event, ExponentialBackoff};
use kube::{Api, Client, ResourceExt};
use sidestep_mesh::field::Invalid;
use sidestep_mesh::kubernetes;
use sidestep_mesh::object::{Key, Name, Object};
use sidestep_mesh::pod::{self, Pod};
use sidestep_mesh::policy::network;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// The first and the longest pause between two attempts.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(5)];

/// What to follow.
#[derive(Clone, Copy)]
pub struct Followed<'a> {
    /// This node's name.
    pub node: &'a str,
    /// The node's own object.
    pub zone: bool,
    /// Services and their endpoints.
    pub services: bool,
    /// None: no pods.
    pub pods: Option<PodScope>,
    pub namespaces: bool,
    pub network_policies: bool,
}

/// Which pods to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodScope {
    /// Those of this node, which the server finds by an index.
    OfNode,
    All,
}

impl PodScope {
    fn selector(self, node: &str) -> String {
        match self {
            PodScope::OfNode => format!("spec.nodeName={node},{ALIVE}"),
            PodScope::All => ALIVE.into(),
        }
    }
}

/// All events, for ever.
pub fn follow(client: &Client, followed: Followed) -> impl Stream<Item = News> + use<> {
    let services = followed.services.then(|| {
        let services = watch(client, "", |service| kubernetes::service(service).map(Some)).map(News::Service);
        [services.boxed(), watch(client, "", kubernetes::slice).map(News::Slice).boxed()]
    });
    let node: Arc<str> = followed.node.into();
    let pods = followed.pods.map(|scope| {
        let fields = scope.selector(&node);
        let pods = watch(client, &fields, move |one: &core::Pod| Ok(Some(Object::Pod(pod_of(one, &node)?))));
        pods.map(News::Pod).boxed()
    });
    let namespaces = followed.namespaces.then(|| {
        let namespaces = watch(client, "", |one| pod::namespace(one).map(|one| Some(Object::Namespace(one))));
        namespaces.map(News::Namespace).boxed()
    });
    let policies = followed
        .network_policies
        .then(|| watch(client, "", |one| network::object(one).map(Some)).map(News::NetworkPolicy).boxed());
    let nodes = followed.zone.then(|| {
        let events = events(client, &format!("metadata.name={}", followed.node));
        events.map(|event| News::Node(Box::new(event))).boxed()
    });
    let others = pods.into_iter().chain(namespaces).chain(policies).chain(nodes);
    stream::select_all(services.into_iter().flatten().chain(others))
}

/// Only of this node's own pods is anything kept that policies of others do not need.
fn pod_of(from: &core::Pod, node: &str) -> Result<Pod, Invalid> {
    let mut pod = pod::pod(from)?;
    if pod.node.as_deref() != Some(node) {
        (pod.uid, pod.mirrored, pod.misread) = (None, None, None);
    }
    Ok(pod)
}

/// What all events of one kind of objects mean, for ever. `fields`: a selector; empty: all of them.
fn watch<K>(
    client: &Client,
    fields: &str,
    read: impl Fn(&K) -> Result<Option<Object>, Invalid> + Send + 'static,
) -> BoxStream<'static, Step>
where
    K: Keyed + Reducible + Clone + Debug + Send + 'static,
{
    events(client, fields).map(move |event| told(event, &read)).boxed()
}

fn events<K>(client: &Client, fields: &str) -> BoxStream<'static, watcher::Result<Event<Reduced<K>>>>
where
    K: Reducible + Clone + Debug + Send + 'static,
{
    let config = watcher::Config::default();
    let config = if fields.is_empty() { config } else { config.fields(fields) };
    sidestep_watch::events(Api::all(client.clone()), config, pauses())
}

/// With jitter, so that not all nodes reconnect at once.
fn pauses() -> ExponentialBackoff {
    let [first, last] = PAUSES;
    let builder = ExponentialBuilder::default().with_min_delay(first).with_max_delay(last);
    builder.with_factor(2.0).with_jitter().without_max_times().into()
}

pub enum News {
    Service(Step),
    Slice(Step),
    Pod(Step),
    Namespace(Step),
    NetworkPolicy(Step),
    /// Of this node's own object.
    Node(Box<watcher::Result<Event<Reduced<Node>>>>),
}

/// An event of a watcher.
pub enum Step {
    /// A list begins: objects that are not in it are gone.
    Begin,
    /// An object of the list.
    Listed(Item),
    End,
    Put(Item),
    Gone(Key),
    /// The server fails. The watcher tries again.
    Failed(String),
    /// The server does not permit reading these objects. The watcher tries again.
    Refused(String),
}

/// An object's key, and the object if it is supported and valid.
pub struct Item {
    pub key: Key,
    pub object: Result<Option<Object>, Invalid>,
    /// Of Services only.
    pub assigned: Option<Box<Assigned>>,
}

/// Objects of the API server that have a key here.
trait Keyed: ResourceExt {
    fn key(&self) -> Key;

    fn assigned(&self) -> Option<Box<Assigned>> {
        None
    }
}

fn name(of: &impl ResourceExt) -> Name {
    Name::new(of.namespace().as_deref().unwrap_or("default"), &of.name_any())
}

impl Keyed for Service {
    fn key(&self) -> Key {
        Key::Service(name(self))
    }

    fn assigned(&self) -> Option<Box<Assigned>> {
        Some(Box::new(Assigned::of(self)))
    }
}

impl Keyed for NetworkPolicy {
    fn key(&self) -> Key {
        Key::NetworkPolicy(name(self))
    }
}

impl Keyed for core::Pod {
    fn key(&self) -> Key {
        Key::Pod(name(self))
    }
}

impl Keyed for Namespace {
    fn key(&self) -> Key {
        Key::Namespace(self.name_any().into())
    }
}

impl Keyed for EndpointSlice {
    fn key(&self) -> Key {
        Key::Slice(name(self))
    }
}

fn told<K: Keyed + Reducible>(
    event: watcher::Result<Event<Reduced<K>>>,
    read: impl Fn(&K) -> Result<Option<Object>, Invalid>,
) -> Step {
    let known = |one: Reduced<K>| {
        let (key, assigned) = (one.object.key(), one.object.assigned());
        Item { key, object: one.whole().and_then(|object| read(&object)), assigned }
    };
    match event {
        Ok(Event::Init) => Step::Begin,
        Ok(Event::InitApply(object)) => Step::Listed(known(object)),
        Ok(Event::InitDone) => Step::End,
        Ok(Event::Apply(object)) => Step::Put(known(object)),
        Ok(Event::Delete(object)) => Step::Gone(object.object.key()),
        Err(error) => {
            let failure = Failure::new::<K>(&error);
            if failure.is_refusal { Step::Refused(failure.text) } else { Step::Failed(failure.text) }
        }
    }
}

#[cfg(test)]
mod tests;
