//! The agent's life: fills the tables, then attaches the programs, and then keeps both up to date.

use crate::admission::{Admissions, StartError};
use crate::announce::Announcer;
use crate::answer::{self, Desk, SocketError};
use crate::args::Args;
use crate::cluster::Cluster;
use crate::directory::Directory;
use crate::heard::Heard;
use crate::lock::{Held, Lock, LockError};
use crate::message::{EventSink, Message, QueryHandle, Refresher, Source};
use crate::node::{End, Node};
use crate::privileges::{self, PrivilegeError};
use crate::repair::Repair;
use crate::settings::{Settings, SettingsError, SourceSettings};
use crate::signals::{self, Caught, IsLoading};
use crate::{addresses, events, metrics, rings, taint};
use sidestep_ebpf::error::{Doing, Error};
use sidestep_ebpf::external::Rivals;
use sidestep_ebpf::probe::{self, Missing};
use sidestep_ebpf::{external, netns, services};
use sidestep_error::chain;
use sidestep_http::Server;
use sidestep_log::Line;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Why the agent does not run, or has ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("cannot handle signals")]
    Signals(#[source] io::Error),
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Missing(#[from] Missing),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("{0}: end it first (SIGTERM), or choose other --pins and another --socket")]
    Running(Held),
    #[error(transparent)]
    Privileges(#[from] PrivilegeError),
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error(transparent)]
    Admissions(#[from] StartError),
    #[error("cannot serve metrics at {address}; choose another address by --metrics, or `--metrics off`")]
    Metrics { address: SocketAddr, source: io::Error },
    #[error("--replace-kube-proxy: {0}")]
    Rivals(Rivals),
    #[error("SO_NETNS_COOKIE")]
    Cookie(#[source] io::Error),
    #[error(transparent)]
    Programs(#[from] Error),
}

#[derive(Debug, thiserror::Error)]
#[error("stopped before all Services were known")]
struct Stopped;

pub fn run(args: Args) -> Result<(), RunError> {
    let signals = Caught::new().map_err(RunError::Signals)?;
    sidestep_log::init(args.log_format, Line::Dated, sidestep_watch::LOGGED);
    let settings = Settings::new(&args)?;
    Missing::check(probe::missing())?;
    if settings.replace_kube_proxy {
        Missing::check(probe::missing_for_packets())?;
        refuse_rivals()?;
    }
    let _lock = Lock::acquire(&settings.pins)?.ok_or_else(|| RunError::Running(Held::new(&settings.pins)))?;
    privileges::drop_others(&settings)?;
    if !probe::may_read_kernel() {
        tracing::warn!(
            "no CAP_PERFMON: the kernel takes twice as long to check the programs, and they take sockets of the kernel's own \
             for those of programs"
        );
    }
    let (inbox, messages) = channel();
    // While the programs are being loaded no messages are read: a signal must not wait for that.
    let is_loading = IsLoading::new(true.into());
    let heard = Heard::new();
    let admissions = admissions(&settings, &inbox, &heard)?;
    let busy = serve_questions(&settings, &inbox, &is_loading, &heard, admissions.clone())?;
    let (source_names, refreshers) = start_sources(&settings, &inbox, &heard);
    let (socket, its_inbox) = (settings.socket.clone(), inbox.clone());
    let agent = signals::Agent { args, inbox: its_inbox, refreshers, is_loading: is_loading.clone(), socket };
    spawn("signals", move || signals.follow(&agent));
    start_addresses(&inbox);
    start_events_of_containers(&settings);
    start_repairs(&settings, &inbox, &heard, admissions);
    let end = keep(&settings, source_names, &inbox, &messages, &is_loading);
    let _ = answer::remove(&settings.socket);
    // Questions that arrive now get an error, and the last answer is still written.
    drop(messages);
    drop(busy.lock());
    let end = end?;
    if end == End::Detach {
        services::remove(&settings.pins)?;
        tracing::info!("detached: connections are the kernel's again");
    } else {
        tracing::info!("ended: connections go on being balanced as programmed; `sidestep agent --detach` stops that");
    }
    Ok(())
}

fn keep(
    settings: &Settings,
    source_names: Vec<String>,
    inbox: &Sender<Message>,
    messages: &Receiver<Message>,
    is_loading: &IsLoading,
) -> Result<End, RunError> {
    let cookie = netns::cookie().map_err(RunError::Cookie)?;
    let options = settings.options(cookie);
    let mut stopped = None;
    let filled = services::install(&options, |maps| {
        is_loading.store(false, Ordering::SeqCst);
        let mut node =
            Node::new(settings.clone(), source_names, cookie, maps, inbox.clone()).doing("read the tables")?;
        match node.fill(messages) {
            None => Ok(node),
            Some(end) => {
                stopped = Some(end);
                Err(Stopped).doing("fill the tables")
            }
        }
    });
    is_loading.store(false, Ordering::SeqCst); // also if loading failed
    match (filled, stopped) {
        (_, Some(end)) => Ok(end),
        (Err(error), None) => Err(error.into()),
        (Ok(mut node), None) => {
            node.translate_packets()?;
            let (pins, inbox, counted) = (settings.pins.clone(), inbox.clone(), node.events());
            spawn("events", move || {
                let not_logged = |error| tracing::warn!("events are not logged: {}", chain(&error));
                events::follow(&pins, &counted, &inbox).unwrap_or_else(not_logged);
            });
            Ok(node.keep(messages))
        }
    }
}

/// Two proxies would choose a backend each for one packet.
fn refuse_rivals() -> Result<(), RunError> {
    external::rivals()?.map_or(Ok(()), |found| Err(RunError::Rivals(found)))
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().name(name.into()).spawn(work).expect("cannot start a thread");
}

fn serve_questions(
    settings: &Settings,
    inbox: &Sender<Message>,
    is_loading: &IsLoading,
    heard: &Heard,
    admissions: Option<Arc<Admissions>>,
) -> Result<answer::Busy, RunError> {
    let listener = answer::listen(&settings.socket)?;
    let desk = Desk { queries: QueryHandle::new(inbox.clone()), admissions };
    let busy = answer::Busy::default();
    let answering = busy.clone();
    spawn("answer", move || desk.serve(&listener, &answering));
    if let Some(address) = settings.metrics {
        let server = Server::bind(address).map_err(|source| RunError::Metrics { address, source })?;
        let queries = QueryHandle::new(inbox.clone());
        let agent = metrics::Agent { queries, is_loading: is_loading.clone(), heard: heard.clone() };
        spawn("metrics", move || {
            let not_served = |error| tracing::warn!("metrics are not served any more: {}", chain(&error));
            server.run(move |page| agent.clone().answer(page)).unwrap_or_else(not_served);
        });
    }
    Ok(busy)
}

/// Reads what an earlier agent has admitted: call it before the sources are started.
fn admissions(
    settings: &Settings,
    inbox: &Sender<Message>,
    heard: &Heard,
) -> Result<Option<Arc<Admissions>>, StartError> {
    let (Some(directory), Some(cluster)) = (&settings.admissions, Cluster::new(settings, heard.clone())) else {
        return Ok(None);
    };
    let admissions = Arc::new(Admissions::new(directory, &settings.host_netns, cluster, inbox.clone())?);
    let sweeping = Arc::clone(&admissions);
    spawn("admissions", move || sweeping.sweep());
    Ok(Some(admissions))
}

/// Returns the sources' names, that of Services first, and functions that make them read everything again.
fn start_sources(settings: &Settings, inbox: &Sender<Message>, heard: &Heard) -> (Vec<String>, Vec<Refresher>) {
    let captures = settings.captures.iter().chain(&settings.admissions).cloned();
    let captures = captures.map(|path| Box::new(Directory::of_captures(path)) as Box<dyn Source>);
    let sources = std::iter::once(source(settings, heard)).chain(captures);
    let start = |(number, source): (usize, Box<dyn Source>)| {
        let (name, refresher) = (source.name(), source.refresher());
        tracing::info!(source = name, node = settings.node_name, "reading");
        let sink = EventSink::new(inbox.clone(), number);
        spawn("source", move || {
            let _gone = source.run(&sink);
        });
        (name, refresher)
    };
    sources.enumerate().map(start).unzip()
}

fn source(settings: &Settings, heard: &Heard) -> Box<dyn Source> {
    if let SourceSettings::Directory(path) = &settings.source {
        return Box::new(Directory::new(path.clone()));
    }
    let cluster = Cluster::new(settings, heard.clone());
    Box::new(cluster.expect("a source is either a directory or a cluster"))
}

fn start_addresses(inbox: &Sender<Message>) {
    let inbox = inbox.clone();
    spawn("addresses", move || {
        let _gone = addresses::follow(&inbox);
    });
}

fn start_events_of_containers(settings: &Settings) {
    if let Some(file) = settings.rings_events.clone() {
        let announcer = Announcer::start(settings);
        spawn("containers", move || rings::follow(file, announcer));
    }
}

/// What the agent changes in the cluster: pods that were not admitted, and the node's taint.
fn start_repairs(settings: &Settings, inbox: &Sender<Message>, heard: &Heard, admissions: Option<Arc<Admissions>>) {
    let (queries, node) = (QueryHandle::new(inbox.clone()), settings.node_name.clone());
    if let (Some(mine), Some(admissions)) = (settings.repair, admissions)
        && let Some(cluster) = Cluster::new(settings, heard.clone())
    {
        let (queries, node, announcer) = (queries.clone(), node.clone(), Announcer::start(settings));
        let repair = Repair { cluster, admissions, queries, node, settings: mine, announcer };
        spawn("repair", move || repair.run());
    }
    if let Some(cluster) = Cluster::new(settings, heard.clone()).filter(|_| settings.remove_taint) {
        spawn("taint", move || taint::keep_off(&cluster, &node, &queries));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_to_do() {
        let (address, source) = ("127.0.0.1:80".parse().unwrap(), io::Error::from_raw_os_error(98));
        let expected = "cannot serve metrics at 127.0.0.1:80; choose another address by --metrics, or `--metrics off`: \
                        Address already in use (os error 98)";
        assert_eq!(chain(&RunError::Metrics { address, source }).to_string(), expected);
        let running = RunError::Running(Held::new(std::path::Path::new("/nonexistent"))).to_string();
        assert!(running.starts_with("an agent runs already with the pins /nonexistent"), "{running}");
        assert!(running.ends_with("end it first (SIGTERM), or choose other --pins and another --socket"), "{running}");
    }
}
