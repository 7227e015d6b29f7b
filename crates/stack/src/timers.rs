//! When connections are due next.

use rustix::time::{ClockId, clock_gettime};
use std::collections::{BTreeSet, HashMap};

/// Microseconds of CLOCK_MONOTONIC.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}

/// Deadlines in microseconds of CLOCK_MONOTONIC, one for each connection.
#[derive(Default)]
pub struct Timers {
    due: BTreeSet<(u64, u64)>,
    of: HashMap<u64, u64>,
}

impl Timers {
    /// The connection is due then; None: only when something happens.
    pub fn set(&mut self, id: u64, at: Option<u64>) {
        let old = match at {
            Some(at) => self.of.insert(id, at),
            None => self.of.remove(&id),
        };
        if old == at {
            return;
        }
        if let Some(old) = old {
            self.due.remove(&(old, id));
        }
        if let Some(at) = at {
            self.due.insert((at, id));
        }
    }

    /// A connection that is due now.
    pub fn pop(&mut self, now: u64) -> Option<u64> {
        let &(at, id) = self.due.first()?;
        (at <= now).then(|| {
            self.set(id, None);
            id
        })
    }

    /// When the next one is due.
    pub fn next(&self) -> Option<u64> {
        self.due.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_connection_is_due_once_at_its_last_deadline() {
        let mut timers = Timers::default();
        timers.set(1, Some(50));
        timers.set(2, Some(30));
        timers.set(1, Some(20));
        timers.set(2, Some(40));
        timers.set(3, Some(10));
        timers.set(3, None);
        assert_eq!(timers.next(), Some(20));
        assert_eq!(timers.pop(19), None);
        assert_eq!((timers.pop(45), timers.pop(45), timers.pop(100)), (Some(1), Some(2), None));
        assert_eq!(timers.next(), None);
    }
}
