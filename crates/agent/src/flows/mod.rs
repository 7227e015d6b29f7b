//! Connections that were counted without a proxy: read and summed up on a thread of its own, since a reading visits every network
//! namespace, and Services must not wait for it. Anybody may ask for metrics, so one reading serves all who wait, and readings
//! are limited in number.

mod ledger;
mod names;
mod pace;

pub use names::Names;

use crate::message::refused;
use ledger::Ledger;
use pace::Pace;
use sidestep_agent_api::{Answer, Flows as Counts, Metrics, Reply};
use sidestep_ebpf::error::Result;
use sidestep_ebpf::watch::Watch;
use sidestep_error::chain;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Instant;

/// Requests that may wait at a time.
const MOST_ASKED: usize = 64;

#[derive(Debug, thiserror::Error)]
#[error("too many queries for metrics at a time: try again later")]
struct TooMany;

/// Metrics to which counts are to be added, and the channel for the answer.
struct Asked(Box<Metrics>, Names, SyncSender<Reply>);

pub struct Flows(SyncSender<Asked>);

impl Flows {
    pub fn start(pins: PathBuf) -> Flows {
        let mut reader = Reader::new(pins);
        Flows::answered_by(move |names| reader.read(names))
    }

    fn answered_by(read: impl FnMut(Names) -> Result<Counts> + Send + 'static) -> Flows {
        let (sender, asked) = sync_channel(MOST_ASKED);
        std::thread::Builder::new()
            .name("flows".into())
            .spawn(move || serve(read, &asked))
            .expect("cannot start a thread");
        Flows(sender)
    }

    pub fn ask(&self, metrics: Box<Metrics>, names: Names, reply: SyncSender<Reply>) {
        match self.0.try_send(Asked(metrics, names, reply)) {
            Ok(()) => {}
            Err(TrySendError::Full(Asked(.., reply))) => {
                let _ = reply.send(Err(refused(&TooMany))); // the client may have gone
            }
            Err(TrySendError::Disconnected(_)) => unreachable!("the thread serves as long as this handle exists"),
        }
    }
}

/// One reading serves all who wait, with the names of the latest request.
fn serve(mut read: impl FnMut(Names) -> Result<Counts>, asked: &Receiver<Asked>) {
    while let Ok(Asked(metrics, mut names, reply)) = asked.recv() {
        let mut waiting = vec![(metrics, reply)];
        for Asked(metrics, newer, reply) in asked.try_iter().take(MOST_ASKED) {
            waiting.push((metrics, reply));
            names = newer;
        }
        let counts =
            read(names).inspect_err(|error| tracing::warn!("connections are not counted: {}", chain(error))).ok();
        for (mut metrics, reply) in waiting {
            metrics.flows.clone_from(&counts);
            let _ = reply.send(Ok(Answer::Metrics(metrics))); // the client may have gone
        }
    }
}

struct Reader {
    pins: PathBuf,
    ledger: Option<Ledger>,
    pace: Pace,
}

impl Reader {
    fn new(pins: PathBuf) -> Reader {
        Reader { pins, ledger: None, pace: Pace::default() }
    }

    fn read(&mut self, names: Names) -> Result<Counts> {
        let watch = Watch::open(&self.pins)?;
        if self.ledger.is_none() {
            // Entries with an earlier agent's numbers, whose names are unknown.
            watch.remove(|between| names.is_of_earlier(between))?;
        }
        let ledger = self.ledger.get_or_insert_default();
        let begun = Instant::now();
        let found = if self.pace.is_due(begun) {
            let read = watch.read();
            self.pace.done(begun, Instant::now());
            read?
        } else {
            watch.read_as_it_is()?
        };
        let gone = ledger.update(&found, names);
        if !gone.is_empty() {
            watch.remove(|between| gone.contains(between))?;
        }
        Ok(ledger.counts())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    /// Asks for metrics; the answer arrives at the receiver.
    fn ask(flows: &Flows) -> Receiver<Reply> {
        let (reply, told) = sync_channel(1);
        flows.ask(Box::default(), Names::default(), reply);
        told
    }

    #[test]
    fn one_reading_answers_all_who_wait_and_no_more_wait_than_there_is_room_for() {
        let (begun, readings) = channel();
        let (go_on, may_go_on) = channel::<()>();
        let flows = Flows::answered_by(move |_| {
            begun.send(()).unwrap();
            let _ = may_go_on.recv();
            Ok(Counts::default())
        });
        let first = ask(&flows);
        readings.recv().unwrap();
        let waiting: Vec<_> = (0..MOST_ASKED).map(|_| ask(&flows)).collect();
        assert!(ask(&flows).recv().unwrap().is_err(), "one too many is told so at once");
        drop(go_on);
        assert!(first.recv().unwrap().is_ok());
        assert!(waiting.iter().all(|told| told.recv().unwrap().is_ok()));
        drop(flows);
        assert_eq!(readings.iter().count(), 1, "one for all who have waited");
    }
}
