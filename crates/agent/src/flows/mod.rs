//! Connections that were counted without a proxy: read and added up on a thread of its own, since that visits every network
//! namespace, and Services must not wait for it.

mod ledger;
mod names;

pub use names::Names;

use ledger::Ledger;
use sidestep_agent_api::{Answer, Flows as Counts, Metrics, Reply};
use sidestep_ebpf::error::Result;
use sidestep_ebpf::watch::Watch;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};

/// Metrics to which counts are to be added, and who wants them.
struct Asked(Box<Metrics>, Names, SyncSender<Reply>);

pub struct Flows(Sender<Asked>);

impl Flows {
    pub fn start(pins: PathBuf) -> Flows {
        let (sender, asked) = channel();
        std::thread::Builder::new()
            .name("flows".into())
            .spawn(move || serve(&pins, &asked))
            .expect("a thread can be had");
        Flows(sender)
    }

    pub fn ask(&self, metrics: Box<Metrics>, names: Names, reply: SyncSender<Reply>) {
        self.0.send(Asked(metrics, names, reply)).expect("it serves as long as somebody may ask");
    }
}

fn serve(pins: &Path, asked: &Receiver<Asked>) {
    let mut ledger = None;
    while let Ok(Asked(mut metrics, names, reply)) = asked.recv() {
        match read(pins, &mut ledger, names) {
            Ok(counts) => metrics.flows = Some(counts),
            Err(error) => tracing::warn!("connections are not counted: {error}"),
        }
        let _ = reply.send(Ok(Answer::Metrics(metrics))); // whoever asked may have gone
    }
}

fn read(pins: &Path, ledger: &mut Option<Ledger>, names: Names) -> Result<Counts> {
    let watch = Watch::open(pins)?;
    if ledger.is_none() {
        // By numbers of an earlier agent, of which nobody knows any more whose they were.
        watch.forget(|between| names.is_of_earlier(between))?;
    }
    let ledger = ledger.get_or_insert_default();
    let found = watch.read()?;
    let gone = ledger.take(&found, names);
    if !gone.is_empty() {
        watch.forget(|between| gone.contains(between))?;
    }
    Ok(ledger.counts())
}
