//! Connections that go back to the kernel in place of a worker that has ended, by the executors of their domains; and who waits for
//! that, which is not for ever.

use crate::process::Process;
use crate::record::Ends;
use rustix::fd::OwnedFd;
use sidestep_device::Taken;
use sidestep_tcp::Tuple;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Shared by executors and the process's main thread.
pub struct Restoration {
    state: Mutex<State>,
    changed: Condvar,
    tables: Vec<Taken>,
    /// Processes that have ended, and that had the connections in their hands.
    ended: Vec<Process>,
    /// The broker does not hear that the worker has ended before the last connection is back.
    _broker: Arc<OwnedFd>,
}

struct State {
    /// Addresses of connections that are back, and that the main thread has not heard of. None: it does not wait any more.
    restored: Option<Vec<Ends>>,
    /// How many connections are not back.
    left: usize,
    /// How many of them have these addresses, each in a network namespace of its own. The device's program tells them not apart.
    same: HashMap<Tuple, usize>,
}

impl Restoration {
    /// Of these connections, as far as their addresses are known. `tables`: of all devices.
    pub fn new(ended: Vec<Process>, broker: Arc<OwnedFd>, tables: Vec<Taken>, all: &[Option<Ends>]) -> Restoration {
        let mut same = HashMap::new();
        all.iter().flatten().for_each(|ends| *same.entry(tuple(ends)).or_default() += 1);
        let state = Mutex::new(State { restored: Some(Vec::new()), left: all.len(), same });
        Restoration { state, changed: Condvar::new(), tables, ended, _broker: broker }
    }

    /// Waits until this thread has ended, if a process that has ended has it.
    pub fn wait_for_thread(&self, thread: u32) {
        self.ended.iter().for_each(|process| process.wait_for_thread(thread));
    }

    /// A connection is back, or lost; None: its addresses are not known.
    pub fn done(&self, ends: Option<Ends>) {
        let mut state = self.state();
        state.left -= 1;
        let ends = ends.filter(|ends| state.was_last(ends));
        match &mut state.restored {
            Some(restored) => restored.extend(ends),
            None => self.remove(ends.as_slice()),
        }
        self.changed.notify_one();
    }

    /// The kernel gets the frames of these connections from now on.
    pub fn remove(&self, restored: &[Ends]) {
        let tuples = restored.iter().map(|ends| sidestep_device::Tuple::new(ends.local, ends.remote));
        for tuple in tuples {
            // What fails here is the device's end.
            self.tables.iter().for_each(|taken| drop(taken.remove(&tuple)));
        }
    }

    /// Waits for connections that are back. None: all are, or the time is over.
    pub fn next(&self, end: Instant) -> Option<Vec<Ends>> {
        let is_waiting = |state: &mut State| state.left > 0 && state.restored.as_ref().is_none_or(Vec::is_empty);
        let left = end.saturating_duration_since(Instant::now());
        let waited = self.changed.wait_timeout_while(self.state(), left, is_waiting);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.restored.as_mut().map(std::mem::take).filter(|restored| !restored.is_empty())
    }

    /// The main thread does not wait any more. Returns the connections that are back, and how many are not.
    pub fn leave(&self) -> (Vec<Ends>, usize) {
        let mut state = self.state();
        (state.restored.take().unwrap_or_default(), state.left)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// A connection with these addresses is back. Whether no other one is left that has the same.
    fn was_last(&mut self, ends: &Ends) -> bool {
        let Some(left) = self.same.get_mut(&tuple(ends)) else { return true };
        *left -= 1;
        *left == 0
    }
}

/// As frames tell it.
pub fn tuple(ends: &Ends) -> Tuple {
    Tuple::new(ends.local, ends.remote)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn equal_addresses_are_the_kernels_once_the_last_connection_is_back() {
        let ends = |port: u16| Some(Ends { local: ([192, 0, 2, 1], port).into(), remote: ([192, 0, 2, 2], 80).into() });
        let broker = Arc::new(rustix::io::dup(std::io::stderr()).expect("dup"));
        let restoration = Restoration::new(Vec::new(), broker, Vec::new(), &[ends(1), ends(1), ends(2), None]);
        let next = || restoration.next(Instant::now() + Duration::from_millis(1));
        [ends(1), None].into_iter().for_each(|ends| restoration.done(ends));
        assert_eq!(next(), None);
        restoration.done(ends(2));
        assert_eq!(next(), ends(2).map(|ends| vec![ends]));
        restoration.done(ends(1));
        assert_eq!(restoration.leave(), (vec![ends(1).expect("addresses")], 0));
    }
}
