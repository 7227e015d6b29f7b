//! The agent's life: tables are filled first, then programs are attached, and then both are kept as they should be.

use crate::args::Args;
use crate::cluster::Cluster;
use crate::directory::Directory;
use crate::lock::{self, Lock};
use crate::message::{Asker, Message, Source, Teller};
use crate::node::{End, Node};
use crate::settings::{Settings, SourceSettings};
use crate::{addresses, answer, events, metrics};
use sidestep_ebpf::error::Error;
use sidestep_ebpf::services::{self, Options};
use sidestep_ebpf::{netns, probe};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::mpsc::{Receiver, Sender, channel};
use tracing_subscriber::EnvFilter;

pub fn run(args: &Args) -> Result<(), String> {
    log();
    let settings = Settings::new(args)?;
    let missing = probe::missing();
    if !missing.is_empty() {
        return Err(missing.join("; "));
    }
    let _lock = Lock::take(&settings.pins)?.ok_or_else(|| {
        format!("{}: end it first (SIGTERM), or choose other --pins and another --socket", lock::held(&settings.pins))
    })?;
    let (inbox, messages) = channel();
    stop_at_signals(&inbox)?;
    let busy = serve_questions(&settings, &inbox)?;
    let source_names = start_sources(&settings, &inbox);
    start_addresses(&inbox);
    let end = keep(&settings, source_names, &inbox, &messages);
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
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
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
) -> Result<End, String> {
    let cookie = netns::cookie().map_err(|error| format!("SO_NETNS_COOKIE: {error}"))?;
    let (pins, cgroup) = (settings.pins.clone(), settings.cgroup.clone());
    let options = Options { pins, cgroup, node_netns: cookie, watch: settings.watch };
    let mut stopped = None;
    let filled = services::install(&options, |maps| {
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

fn stop_at_signals(inbox: &Sender<Message>) -> Result<(), String> {
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(|error| format!("cannot handle signals: {error}"))?;
    let inbox = inbox.clone();
    spawn("signals", move || {
        signals.forever().take_while(|_| inbox.send(Message::Stop).is_ok()).for_each(drop);
    });
    Ok(())
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

/// Returns their names: Services first.
fn start_sources(settings: &Settings, inbox: &Sender<Message>) -> Vec<String> {
    let captures = settings.captures.clone().map(|path| Box::new(Directory::of_captures(path)) as Box<dyn Source>);
    let sources = std::iter::once(source(settings)).chain(captures);
    let start = |(number, source): (usize, Box<dyn Source>)| {
        let name = source.name();
        tracing::info!(source = name, node = settings.node_name, "reading");
        let teller = Teller::new(inbox.clone(), number);
        spawn("source", move || {
            let _gone = source.run(&teller);
        });
        name
    };
    sources.enumerate().map(start).collect()
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
