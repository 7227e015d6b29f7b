//! Services, and pods where policies are about them, from a Kubernetes API server: list, then watch; both again, with growing pauses, when the server goes away.

use crate::message::{Gone, Source, Teller, Told};
use crate::settings::{Settings, SourceSettings};
use backon::ExponentialBuilder;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt, stream};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher::{Event, ExponentialBackoff};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Config, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use sidestep_mesh::kubernetes::{self, Invalid};
use sidestep_mesh::object::{Key, Name, Object};
use sidestep_mesh::pod;
use sidestep_mesh::state::Change;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub struct Cluster {
    kubeconfig: Option<PathBuf>,
    node_name: String,
    /// The zone that options give is not asked for.
    asks_zone: bool,
    /// Who is who matters to policies, which are read beside the captures.
    asks_pods: bool,
}

/// Until there is a first connection.
const AGAIN: Duration = Duration::from_secs(1);
/// Between two attempts of a watch: at first, and at last.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(5)];
/// A watch that fails does so again, and says so, after less than this; one that goes on says nothing if nothing changes.
const QUIET: Duration = Duration::from_secs(60);
/// The label of a node's zone.
const ZONE: &str = "topology.kubernetes.io/zone";

impl Cluster {
    /// None: the settings name no cluster.
    pub fn new(settings: &Settings) -> Option<Cluster> {
        let kubeconfig = match &settings.source {
            SourceSettings::Kubeconfig(path) => Some(path.clone()),
            SourceSettings::InCluster => None,
            SourceSettings::Directory(_) => return None,
        };
        let (asks_zone, asks_pods) = (settings.zone.is_none(), settings.captures.is_some());
        Some(Cluster { kubeconfig, node_name: settings.node_name.clone(), asks_zone, asks_pods })
    }

    async fn connect(&self) -> Result<Client, String> {
        let config = match &self.kubeconfig {
            Some(path) => {
                let file = Kubeconfig::read_from(path).map_err(|error| error.to_string())?;
                let options = KubeConfigOptions::default();
                Config::from_custom_kubeconfig(file, &options).await.map_err(|error| error.to_string())?
            }
            None => Config::incluster().map_err(|error| error.to_string())?,
        };
        Client::try_from(config).map_err(|error| error.to_string())
    }

    async fn follow(&self, teller: &Teller) -> Result<(), Gone> {
        let client = loop {
            match self.connect().await {
                Ok(client) => break client,
                Err(why) => teller.outage(self.name(), why)?,
            }
            tokio::time::sleep(AGAIN).await;
        };
        teller.well(self.name())?;
        let of_kind = |kind| Kind {
            told: BTreeSet::new(),
            listed: BTreeSet::new(),
            is_listed: false,
            is_refused: false,
            outage: Outage::of(kind),
        };
        let mut services = of_kind("Services");
        let mut slices = of_kind("EndpointSlices");
        let (mut pods, mut namespaces) = (of_kind("Pods"), of_kind("Namespaces"));
        let outage = Outage::of(&format!("Node {}", self.node_name));
        let mut mine = Mine { is_answered: !self.asks_zone, outage };
        let mut is_told = false;
        let mut news = pin!(self.news(&client));
        loop {
            for kind in [&mut services, &mut slices, &mut pods, &mut namespaces] {
                kind.outage.end_if_quiet(teller)?;
            }
            mine.outage.end_if_quiet(teller)?;
            let Ok(next) = tokio::time::timeout(QUIET, news.next()).await else { continue };
            let Some(next) = next else { return Ok(()) };
            match next {
                News::Service(event) => services.take(event, teller)?,
                News::Slice(event) => slices.take(event, teller)?,
                News::Pod(event) => pods.take(event, teller)?,
                News::Namespace(event) => namespaces.take(event, teller)?,
                News::Node(event) => mine.take(*event, teller)?,
            }
            let knows_pods =
                !self.asks_pods || [&pods, &namespaces].iter().all(|kind| kind.is_listed || kind.is_refused);
            if !is_told && services.is_listed && slices.is_listed && knows_pods && mine.is_answered {
                is_told = true;
                teller.tell(Told::Listed)?;
            }
        }
    }

    /// Everything that happens, for ever.
    fn news(&self, client: &Client) -> impl Stream<Item = News> + use<> {
        let services = watch(client, |service| kubernetes::service(service).map(Some)).map(News::Service);
        let slices = watch(client, kubernetes::slice).map(News::Slice);
        let pods = watch(client, |one| pod::pod(one).map(|pod| Some(Object::Pod(pod)))).map(News::Pod);
        let namespaces = watch(client, |one| pod::namespace(one).map(|one| Some(Object::Namespace(one))));
        let mine = watcher::Config::default().fields(&format!("metadata.name={}", self.node_name));
        let nodes =
            watcher(Api::<Node>::all(client.clone()), mine).backoff(pauses()).map(|event| News::Node(Box::new(event)));
        let of_pods = [pods.boxed(), namespaces.map(News::Namespace).boxed()].into_iter().filter(|_| self.asks_pods);
        let of_nodes = [nodes.boxed()].into_iter().filter(|_| self.asks_zone);
        stream::select_all([services.boxed(), slices.boxed()].into_iter().chain(of_pods).chain(of_nodes))
    }
}

/// Everything that happens to objects of a kind, for ever.
fn watch<K>(
    client: &Client,
    read: impl Fn(&K) -> Result<Option<Object>, Invalid> + Send + 'static,
) -> BoxStream<'static, Step>
where
    K: Keyed + Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let events = watcher(Api::<K>::all(client.clone()), watcher::Config::default()).backoff(pauses());
    events.map(move |event| told(event, &read)).boxed()
}

impl Source for Cluster {
    fn name(&self) -> String {
        match &self.kubeconfig {
            Some(path) => format!("API server of {}", path.display()),
            None => "API server of this cluster".into(),
        }
    }

    fn run(self: Box<Self>, teller: &Teller) -> Result<(), Gone> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => runtime.block_on(self.follow(teller)),
            Err(why) => teller.trouble(self.name(), format!("cannot begin to watch: {why}")),
        }
    }
}

/// With jitter, so that not all nodes come back at once.
fn pauses() -> ExponentialBackoff {
    let [first, last] = PAUSES;
    let builder = ExponentialBuilder::default().with_min_delay(first).with_max_delay(last);
    builder.with_factor(2.0).with_jitter().without_max_times().into()
}

enum News {
    Service(Step),
    Slice(Step),
    Pod(Step),
    Namespace(Step),
    /// Of this node.
    Node(Box<watcher::Result<Event<Node>>>),
}

/// What a watcher says, in our terms.
enum Step {
    /// A list begins: what is not in it has gone.
    Begin,
    /// An object of the list.
    Listed(Known),
    End,
    Put(Known),
    Gone(Key),
    /// The server does not answer as it should. The watcher goes on by itself.
    Failed(String),
    /// It does not let us see them. The watcher goes on asking.
    Refused(String),
}

/// An object, if it is one of ours and can be understood.
struct Known {
    key: Key,
    object: Result<Option<Object>, Invalid>,
}

/// Objects of the API server that have a key here.
trait Keyed: ResourceExt {
    fn key(&self) -> Key;
}

fn name(of: &impl ResourceExt) -> Name {
    Name::new(of.namespace().as_deref().unwrap_or("default"), &of.name_any())
}

impl Keyed for Service {
    fn key(&self) -> Key {
        Key::Service(name(self))
    }
}

impl Keyed for Pod {
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

fn told<K: Keyed>(event: watcher::Result<Event<K>>, read: impl Fn(&K) -> Result<Option<Object>, Invalid>) -> Step {
    let known = |object: &K| Known { key: object.key(), object: read(object) };
    match event {
        Ok(Event::Init) => Step::Begin,
        Ok(Event::InitApply(object)) => Step::Listed(known(&object)),
        Ok(Event::InitDone) => Step::End,
        Ok(Event::Apply(object)) => Step::Put(known(&object)),
        Ok(Event::Delete(object)) => Step::Gone(object.key()),
        Err(error) if is_refusal(&error) => Step::Refused(error.to_string()),
        Err(error) => Step::Failed(error.to_string()),
    }
}

fn is_refusal(error: &watcher::Error) -> bool {
    let of_server = match error {
        watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) => error,
        _ => return false,
    };
    matches!(of_server, kube::Error::Api(status) if status.code == 403)
}

fn zone(node: &Node) -> Option<Arc<str>> {
    node.labels().get(ZONE).map(|zone| zone.as_str().into())
}

/// A watch that fails, and may go on without a word.
struct Outage {
    place: String,
    last: Option<Instant>,
}

impl Outage {
    fn of(place: &str) -> Outage {
        Outage { place: place.into(), last: None }
    }

    fn fail(&mut self, why: impl ToString, teller: &Teller) -> Result<(), Gone> {
        self.last = Some(Instant::now());
        teller.outage(&self.place, why)
    }

    fn end(&mut self, teller: &Teller) -> Result<(), Gone> {
        self.last.take().map_or(Ok(()), |_| teller.well(&self.place))
    }

    fn end_if_quiet(&mut self, teller: &Teller) -> Result<(), Gone> {
        if self.last.is_some_and(|last| last.elapsed() >= QUIET) { self.end(teller) } else { Ok(()) }
    }
}

/// This node's own object.
struct Mine {
    /// What its zone is, that there is no such Node, or that the server does not say: hints count as they can.
    is_answered: bool,
    outage: Outage,
}

impl Mine {
    fn take(&mut self, event: watcher::Result<Event<Node>>, teller: &Teller) -> Result<(), Gone> {
        match event {
            // A list that begins has only been asked for.
            Ok(Event::Init) => Ok(()),
            Ok(event) => {
                self.outage.end(teller)?;
                self.answered(event, teller)
            }
            Err(why) => {
                self.is_answered = true;
                self.outage.fail(why, teller)
            }
        }
    }

    /// A Node that has gone leaves its zone as it was: the node is still where it is.
    fn answered(&mut self, event: Event<Node>, teller: &Teller) -> Result<(), Gone> {
        self.is_answered = true;
        match event {
            Event::Apply(node) | Event::InitApply(node) => teller.tell(Told::Zone(zone(&node))),
            Event::Init | Event::InitDone | Event::Delete(_) => Ok(()),
        }
    }
}

/// One kind of objects: what has been told of it, and what a list that is being read holds.
struct Kind {
    told: BTreeSet<Key>,
    listed: BTreeSet<Key>,
    is_listed: bool,
    /// The server does not let us see them: they are as good as none.
    is_refused: bool,
    outage: Outage,
}

impl Kind {
    fn take(&mut self, step: Step, teller: &Teller) -> Result<(), Gone> {
        // A list that begins has only been asked for.
        if !matches!(step, Step::Begin | Step::Failed(_) | Step::Refused(_)) {
            self.outage.end(teller)?;
        }
        match step {
            Step::Begin => {
                self.listed.clear();
                Ok(())
            }
            Step::Listed(known) => {
                self.listed.insert(known.key.clone());
                self.put(known, teller)
            }
            Step::End => {
                let gone: Vec<Key> = self.told.difference(&self.listed).cloned().collect();
                gone.into_iter().try_for_each(|key| self.delete(key, teller))?;
                self.is_listed = true;
                Ok(())
            }
            Step::Put(known) => self.put(known, teller),
            Step::Gone(key) => self.delete(key, teller),
            Step::Failed(why) => self.outage.fail(why, teller),
            Step::Refused(why) => {
                self.is_refused = true;
                self.outage.fail(why, teller)
            }
        }
    }

    /// An object that cannot be understood stays what it was. It is well when what it says is known: what an earlier agent
    /// left besides goes as soon as nothing is hidden.
    fn put(&mut self, known: Known, teller: &Teller) -> Result<(), Gone> {
        match known.object {
            Ok(object) => {
                let Some(object) = object else { return self.delete(known.key, teller) };
                self.told.insert(known.key.clone());
                teller.change(Change::Put(object))?;
                teller.well(&known.key)
            }
            Err(invalid) => teller.trouble(&known.key, invalid),
        }
    }

    fn delete(&mut self, key: Key, teller: &Teller) -> Result<(), Gone> {
        if self.told.remove(&key) {
            teller.change(Change::Delete(key.clone()))?;
        }
        teller.well(&key)
    }
}
