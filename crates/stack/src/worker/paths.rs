//! Routes, neighbours and devices that change.

use super::Worker;
use crate::cause::Cause;
use crate::error::Error;
use crate::record;
use crate::stage::{Conn, Entry, Stage};
use crate::timers::now;
use sidestep_device::path::Path;

/// Microseconds between two times that the kernel is told which neighbours are in use: it does not see the stack's frames.
const REFRESH: u64 = 5_000_000;

impl Worker {
    /// Gives back the connections whose path may have changed. The kernel finds another one, or waits until there is one.
    pub(super) fn hear_changes(&mut self) -> Result<bool, Error> {
        let changes = self.watch.changes().map_err(Error::Watch)?;
        if changes.is_empty() {
            self.refresh_neighbours();
            return Ok(false);
        }
        self.changes += 1;
        if self.devices.iter().any(|device| changes.iter().any(|change| device.is_ended_by(change))) {
            return Err(Error::InletGone);
        }
        let concerns = |path: &Path| changes.iter().any(|change| change.concerns(path));
        self.wanted.values_mut().for_each(|subject| subject.is_stale |= concerns(&subject.path));
        let mut concerned = Vec::new();
        for entry in self.conns.iter_mut().flatten() {
            match entry {
                Entry::Away(absence) => absence.has_changed |= concerns(&absence.path),
                Entry::Here(conn) if !concerns(&conn.subject.path) => {}
                // The kernel carries it, and no frame has been looked for yet.
                Entry::Here(Conn { stage: Stage::Assigned(..), subject, .. }) => subject.is_stale = true,
                Entry::Here(conn) => concerned.push(conn.number),
            }
        }
        concerned.into_iter().for_each(|id| self.end(id, Cause::Path));
        Ok(true)
    }

    fn refresh_neighbours(&mut self) {
        let time = now();
        if time < self.refresh_at {
            return;
        }
        self.refresh_at = time + REFRESH;
        self.executors.end_idle();
        self.free.extend(record::freed(&self.ledger, &mut self.held));
        let path = |entry: &Entry| match entry {
            Entry::Here(Conn { stage: Stage::Carried(_), subject, .. }) => Some(subject.path),
            _ => None,
        };
        self.refresh.tell(self.conns.iter().flatten().filter_map(path));
    }
}
