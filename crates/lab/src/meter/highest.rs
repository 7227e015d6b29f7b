//! The most processors in use in any tenth of a second.

use super::account::{Account, spent};
use super::spent::Spent;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const PIECE: Duration = Duration::from_millis(100);

/// Watches until `end`, or until it is dropped.
pub struct Highest {
    _alive: Sender<()>,
    watcher: JoinHandle<f64>,
}

impl Highest {
    pub fn watch(accounts: Vec<Account>) -> Highest {
        let (alive, over) = channel();
        Highest { _alive: alive, watcher: thread::spawn(move || highest(&accounts, &over)) }
    }

    /// Zero if less than a tenth of a second has passed.
    pub fn end(self) -> f64 {
        drop(self._alive);
        self.watcher.join().unwrap_or(0.0)
    }
}

fn highest(accounts: &[Account], over: &Receiver<()>) -> f64 {
    let (mut highest, mut before) = (0.0f64, now(accounts));
    while over.recv_timeout(PIECE) == Err(RecvTimeoutError::Timeout) {
        let after = now(accounts);
        highest = highest.max((after.1 - before.1) / (after.0 - before.0).as_secs_f64());
        before = after;
    }
    highest
}

fn now(accounts: &[Account]) -> (Instant, f64) {
    (Instant::now(), spent(accounts).into_iter().map(Spent::total).sum())
}
