//! Routes, neighbours and devices that change.

use super::Worker;
use crate::cause::Cause;
use crate::error::Error;
use crate::stage::Stage;
use crate::timers::now;
use sidestep_device::path;
use std::collections::HashMap;

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
        if self.devices.iter().any(|device| changes.iter().any(|change| device.is_ended_by(change))) {
            return Err(Error::InletGone);
        }
        let concerned: Vec<u32> = self
            .conns
            .iter()
            .flatten()
            .filter(|conn| !matches!(conn.stage, Stage::Assigned(..) | Stage::Observed(..)))
            .filter(|conn| changes.iter().any(|change| change.concerns(&conn.subject.path)))
            .map(|conn| conn.number)
            .collect();
        concerned.into_iter().for_each(|id| self.end(id, Cause::Path));
        Ok(true)
    }

    fn refresh_neighbours(&mut self) {
        let time = now();
        if time < self.refresh_at {
            return;
        }
        self.refresh_at = time + REFRESH;
        let carried = self.conns.iter().flatten().filter(|conn| matches!(conn.stage, Stage::Carried(_)));
        let hops: HashMap<_, _> = carried.map(|conn| (conn.subject.path.next_hop, conn.subject.path)).collect();
        for path in hops.values() {
            // If this fails, the entry is removed in the end, and the connections go back to the kernel.
            let _ = path::refresh(path);
        }
    }
}
