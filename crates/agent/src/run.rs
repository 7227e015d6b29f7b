//! The agent's life: tables are filled first, then programs are attached, and then both are kept as they should be.

use crate::args::Args;
use crate::cluster::Cluster;
use crate::directory::Directory;
use crate::lock::{self, Lock};
use crate::message::{Asker, Message, Refresher, Source, Teller};
use crate::node::{End, Node};
use crate::settings::{Settings, SourceSettings};
use crate::signals::{self, Caught, IsLoading};
use crate::{addresses, answer, events, metrics, privileges};
use sidestep_ebpf::error::Error;
use sidestep_ebpf::services;
use sidestep_ebpf::{netns, probe};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use tracing_subscriber::EnvFilter;

pub fn run(args: Args) -> Result<(), String> {
    let signals = Caught::new()?;
    log();
    let settings = Settings::new(&args)?;
    let missing = probe::missing();
    if !missing.is_empty() {
        return Err(missing.join("; "));
    }
    let _lock = Lock::take(&settings.pins)?.ok_or_else(|| {
        format!("{}: end it first (SIGTERM), or choose other --pins and another --socket", lock::held(&settings.pins))
    })?;
    privileges::drop_others(&settings)?;
    if !probe::may_read_kernel() {
        tracing::warn!(
            "no CAP_PERFMON: the kernel takes twice as long to check the programs, and they take sockets of the kernel's own \
             for those of programs"
        );
    }
    let (inbox, messages) = channel();
    let busy = serve_questions(&settings, &inbox)?;
    let (source_names, refreshers) = start_sources(&settings, &inbox);
    let is_loading = IsLoading::default();
    let (socket, its_inbox) = (settings.socket.clone(), inbox.clone());
    let agent = signals::Agent { args, inbox: its_inbox, refreshers, is_loading: is_loading.clone(), socket };
    spawn("signals", move || signals.follow(&agent));
    start_addresses(&inbox);
    let end = keep(&settings, source_names, &inbox, &messages, &is_loading);
    let _ = answer::remove(&settings.socket);
    // Questions that came too late are told so, and the last answer is still written.
    drop(messages);
    drop(busy.lock());
    let end = end?;
    if end == End::Detach {
        services::remove(&settings.pins).map_err(|error| error.to_string())?;
        tracing::info!("detached: connections are the kernel's again");
    } else {
        tracing::info!("ended: connections go on being balanced as programmed; `sidestep agent --detach` stops that");
    }
    Ok(())
}

fn log() {
    // The client of the API server has lines of its own for what the agent tells as a trouble.
    let default = || EnvFilter::new("info,kube_client=off,kube_runtime=off");
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| default());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .init();
}

fn keep(
    settings: &Settings,
    source_names: Vec<String>,
    inbox: &Sender<Message>,
    messages: &Receiver<Message>,
    is_loading: &IsLoading,
) -> Result<End, String> {
    let cookie = netns::cookie().map_err(|error| format!("SO_NETNS_COOKIE: {error}"))?;
    let options = settings.options(cookie);
    let mut stopped = None;
    is_loading.store(true, Ordering::SeqCst);
    let filled = services::install(&options, |maps| {
        is_loading.store(false, Ordering::SeqCst);
        let mut node = Node::new(settings.clone(), source_names, cookie, maps, inbox.clone())
            .map_err(|e| Error::new("read the tables", e))?;
        match node.fill(messages) {
            None => Ok(node),
            Some(end) => {
                stopped = Some(end);
                Err(Error::new("fill the tables", "stopped before all Services were known"))
            }
        }
    });
    is_loading.store(false, Ordering::SeqCst); // if it could not be loaded
    match (filled, stopped) {
        (_, Some(end)) => Ok(end),
        (Err(error), None) => Err(error.to_string()),
        (Ok(mut node), None) => {
            let (pins, inbox) = (settings.pins.clone(), inbox.clone());
            spawn("events", move || {
                events::follow(&pins, &inbox).unwrap_or_else(|error| tracing::warn!("events are not logged: {error}"));
            });
            Ok(node.keep(messages))
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().name(name.into()).spawn(work).expect("a thread can be had");
}

fn serve_questions(settings: &Settings, inbox: &Sender<Message>) -> Result<answer::Busy, String> {
    let listener = answer::listen(&settings.socket)?;
    let asker = Asker::new(inbox.clone());
    let busy = answer::Busy::default();
    let answering = busy.clone();
    spawn("answer", move || answer::serve(&listener, &asker, &answering));
    if let Some(address) = settings.metrics {
        let server = metrics::Server::bind(address).map_err(|error| {
            format!(
                "cannot serve metrics at {address}: {error}; choose another address by --metrics, or `--metrics off`"
            )
        })?;
        let asker = Asker::new(inbox.clone());
        spawn("metrics", move || {
            server.run(asker).unwrap_or_else(|error| tracing::warn!("metrics are not served any more: {error}"));
        });
    }
    Ok(busy)
}

/// Returns their names, Services first, and what makes them read everything again.
fn start_sources(settings: &Settings, inbox: &Sender<Message>) -> (Vec<String>, Vec<Refresher>) {
    let captures = settings.captures.clone().map(|path| Box::new(Directory::of_captures(path)) as Box<dyn Source>);
    let sources = std::iter::once(source(settings)).chain(captures);
    let start = |(number, source): (usize, Box<dyn Source>)| {
        let (name, refresher) = (source.name(), source.refresher());
        tracing::info!(source = name, node = settings.node_name, "reading");
        let teller = Teller::new(inbox.clone(), number);
        spawn("source", move || {
            let _gone = source.run(&teller);
        });
        (name, refresher)
    };
    sources.enumerate().map(start).unzip()
}

fn source(settings: &Settings) -> Box<dyn Source> {
    if let SourceSettings::Directory(path) = &settings.source {
        return Box::new(Directory::new(path.clone()));
    }
    let cluster = Cluster::new(settings);
    Box::new(cluster.expect("what is no directory is a cluster"))
}

fn start_addresses(inbox: &Sender<Message>) {
    let inbox = inbox.clone();
    spawn("addresses", move || match addresses::follow(&inbox) {
        Ok(_gone) => {}
        Err(error) => tracing::error!("NodePorts and policies do not follow this node's addresses any more: {error}"),
    });
}
