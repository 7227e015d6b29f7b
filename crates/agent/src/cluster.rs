//! Services from a Kubernetes API server, unless another program balances them; pods if captures or policies need them, and namespaces if
//! these or rings do: list, then watch; both again, with growing pauses, when the server goes away.

mod assigned;
mod enrolled;
mod failure;
mod known;
mod listening;
mod news;
mod peers;
mod reduced;

pub use reduced::Reduced;

use crate::heard::Heard;
use crate::message::{EventSink, Gone, Refresher, Source};
use crate::settings::{Settings, SourceSettings};
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use known::{Known, QUIET};
use kube::client::ClientBuilder;
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use listening::Listening;
use news::{Followed, PodScope};
use sidestep_error::chain;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

pub struct Cluster {
    kubeconfig: Option<PathBuf>,
    node_name: String,
    /// Whether to read this node's zone, which the options do not set.
    asks_zone: bool,
    asks_services: bool,
    /// Which pods to read at first. None: no pods.
    pods: Option<PodScope>,
    /// Where the names of namespaces are written that are enrolled for rings.
    rings_namespaces: Option<PathBuf>,
    asks_network_policies: bool,
    refresh: Arc<Notify>,
    heard: Heard,
}

/// Why there is no client for the API server.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    #[error(transparent)]
    InCluster(#[from] InClusterError),
    #[error(transparent)]
    Client(#[from] kube::Error),
}

/// An API server that says nothing on a connection for so long is asked again on another one. The server ends each watch after 290
/// seconds, and the library gives up five seconds later.
const PATIENCE: Duration = Duration::from_secs(330);

/// How to reach the API server. None: as a pod of its cluster.
pub async fn config(kubeconfig: Option<&Path>) -> Result<Config, ConnectError> {
    let mut config = match kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path)?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?
        }
        None => Config::incluster()?,
    };
    config.read_timeout = Some(PATIENCE);
    // The time counts from the request, not from the last answer on a connection that was idle since.
    config.reset_reader_on_write = true;
    Ok(config)
}

/// Pause between attempts for the first connection.
const AGAIN: Duration = Duration::from_secs(1);

impl Cluster {
    /// None: the settings name no API server.
    pub fn new(settings: &Settings, heard: Heard) -> Option<Cluster> {
        let kubeconfig = match &settings.source {
            SourceSettings::Kubeconfig(path) => Some(path.clone()),
            SourceSettings::InCluster => None,
            SourceSettings::Directory(_) => return None,
        };
        // Without Services the zone has no use, but there may be nothing else by which the server is known to answer.
        let asks_zone = settings.zone.is_none() || !settings.services;
        let asks_network_policies = settings.network_policies;
        let node_name = settings.node_name.clone();
        Some(Cluster {
            kubeconfig,
            node_name,
            asks_zone,
            asks_services: settings.services,
            pods: pods(settings),
            rings_namespaces: settings.rings_namespaces.clone(),
            asks_network_policies,
            refresh: Arc::default(),
            heard,
        })
    }

    /// Whether to read namespaces.
    fn asks_namespaces(&self) -> bool {
        self.pods.is_some() || self.rings_namespaces.is_some()
    }

    /// A client with the settings and credentials that files have now.
    pub async fn connect(&self) -> Result<Client, ConnectError> {
        self.client(config(self.kubeconfig.as_deref()).await?)
    }

    /// A client that passes on at once what the server refuses for now, such as an eviction, instead of asking again.
    pub async fn connect_impatiently(&self) -> Result<Client, ConnectError> {
        let mut config = config(self.kubeconfig.as_deref()).await?;
        config.default_retry = false;
        self.client(config)
    }

    fn client(&self, config: Config) -> Result<Client, ConnectError> {
        Ok(ClientBuilder::try_from(config)?.with_layer(&Listening(self.heard.clone())).build())
    }

    async fn follow(&self, sink: &EventSink) -> Result<(), Gone> {
        let mut client = loop {
            match self.connect().await {
                Ok(client) => break client,
                Err(error) => sink.outage(self.name(), chain(&error))?,
            }
            tokio::time::sleep(AGAIN).await;
        };
        sink.well(self.name())?;
        let mut known = Known::new(self);
        loop {
            self.watch(&client, &mut known, sink).await?;
            // The connection's settings may have changed. If the new ones are invalid, the old ones stay.
            match self.connect().await {
                Ok(new) => {
                    client = new;
                    sink.well(self.name())?;
                }
                Err(error) => sink.outage(self.name(), chain(&error))?,
            }
        }
    }

    /// Reports all changes, until everything is to be read again.
    async fn watch(&self, client: &Client, known: &mut Known, sink: &EventSink) -> Result<(), Gone> {
        let followed = Followed {
            node: &self.node_name,
            zone: self.asks_zone,
            services: self.asks_services,
            pods: known.pods(),
            namespaces: self.asks_namespaces(),
            network_policies: self.asks_network_policies,
        };
        let mut news = pin!(news::follow(client, followed));
        let mut refresh = pin!(self.refresh.notified());
        loop {
            known.end_quiet_outages(sink)?;
            known.write_enrolled(sink)?;
            let next = select(news.next(), refresh.as_mut());
            match tokio::time::timeout(QUIET, next).await {
                Ok(Either::Left((Some(next), _))) => {
                    known.handle(next, sink)?;
                    if known.needs_more_pods() {
                        return Ok(());
                    }
                }
                Ok(Either::Left((None, _)) | Either::Right(_)) => return Ok(()),
                Err(_) => {}
            }
        }
    }
}

/// Rules of NetworkPolicies, and of the policies that a directory of captures may have at any time, name peers on any node; so do the
/// counts of `--watch`. For admitted pods alone those of this node will do, whose labels may change, until a Service asks for
/// the bypass: see [`peers`].
fn pods(settings: &Settings) -> Option<PodScope> {
    let needs_peers = settings.network_policies || settings.captures.is_some();
    let has_pods = needs_peers || settings.admissions.is_some();
    has_pods.then_some(if needs_peers || settings.watch { PodScope::All } else { PodScope::OfNode })
}

impl Source for Cluster {
    fn name(&self) -> String {
        match &self.kubeconfig {
            Some(path) => format!("API server of {}", path.display()),
            None => "API server of this cluster".into(),
        }
    }

    fn refresher(&self) -> Refresher {
        let refresh = Arc::clone(&self.refresh);
        Box::new(move || refresh.notify_one())
    }

    fn run(self: Box<Self>, sink: &EventSink) -> Result<(), Gone> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => runtime.block_on(self.follow(sink)),
            Err(error) => sink.trouble(self.name(), format!("cannot begin to watch: {}", chain(&error))),
        }
    }
}
