//! Calls that have not returned yet.

use std::time::{Duration, Instant};

use super::channel::Hold;
use super::place::Placed;
use super::tell;
use super::worker::{Outcome, Worker};
use crate::program::Call;
use crate::trace::Line;

pub struct Pending {
    pub step: usize,
    pub call: Call,
    pub placed: Vec<Placed>,
    pub worker: Worker,
    /// None: the call moves no bytes.
    pub hold: Option<Hold>,
}

/// A thread that has not been scheduled for this long sleeps for good: the library's own looks come every millisecond.
const DEEP_MS: u64 = 4;
/// A thread that looks now and then counts as asleep, too, after this long.
const LIGHT_MS: u64 = 60;
/// A call that returned on the kernel must return within this time.
const LATE_MS: u64 = 3000;

impl Pending {
    pub fn line(&self, at: u8, outcome: &Outcome) -> Line {
        let mut line = Line { step: self.step, at, ms: outcome.took.as_millis() as u64, ..Line::default() };
        tell::tell(&self.call, &self.placed, outcome, &mut line);
        line
    }
}

/// Waits until the call returns, or sleeps (None). `blocks`: whether it blocked on the kernel, if known.
pub fn over_or_asleep(worker: &Worker, blocks: Option<bool>) -> Option<Outcome> {
    if blocks == Some(false) {
        return worker.wait(Duration::from_millis(LATE_MS));
    }
    let started = Instant::now();
    let mut rest = Rest::default();
    loop {
        if let Some(outcome) = worker.wait(Duration::from_micros(300)) {
            return Some(outcome);
        }
        if rest.is_deep(worker) || started.elapsed().as_millis() > LIGHT_MS.into() {
            return None;
        }
    }
}

/// Measures how long a thread has slept without being scheduled.
#[derive(Default)]
struct Rest {
    since: Option<(u64, Instant)>,
}

impl Rest {
    fn is_deep(&mut self, worker: &Worker) -> bool {
        match (worker.asleep(), self.since) {
            (Some(now), Some((before, since))) if now == before => since.elapsed().as_millis() >= DEEP_MS.into(),
            (Some(now), _) => {
                self.since = Some((now, Instant::now()));
                false
            }
            (None, _) => {
                self.since = None;
                false
            }
        }
    }
}

/// Waits until each call has returned or sleeps. Returns those that have returned. `expected`: steps whose calls returned on
/// the kernel; they get more time.
pub fn settle(pending: &mut Vec<Pending>, expected: &[usize]) -> Vec<(Pending, Outcome)> {
    let started = Instant::now();
    let mut rests: Vec<Rest> = pending.iter().map(|_| Rest::default()).collect();
    let mut over = vec![];
    loop {
        let mut i = 0;
        while i < pending.len() {
            match pending[i].worker.wait(Duration::ZERO) {
                Some(outcome) => {
                    rests.remove(i);
                    over.push((pending.remove(i), outcome));
                }
                None => i += 1,
            }
        }
        let missing = expected.iter().any(|step| pending.iter().any(|p| p.step == *step));
        let elapsed = started.elapsed().as_millis() as u64;
        let deep = pending.iter().zip(&mut rests).fold(true, |all, (p, rest)| rest.is_deep(&p.worker) && all);
        if missing && elapsed < LATE_MS || !missing && !deep && elapsed < LIGHT_MS {
            std::thread::sleep(Duration::from_micros(300));
            continue;
        }
        over.sort_by_key(|(p, _)| p.step);
        return over;
    }
}
