//! Writes the tables.

use super::Node;
use crate::policing::Changed;
use sidestep_error::chain;
use sidestep_mesh::address::Family;
use sidestep_mesh::choose;
use sidestep_mesh::object::Name;
use sidestep_mesh::reconcile::Outcome;
use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

/// After a failed write the tables are written again.
const AGAIN: Duration = Duration::from_secs(1);
/// Places of the histogram of write times: up to 8 s, and all above.
const DURATIONS: usize = 24;

impl Node {
    /// Writes what has changed, and gives back what nobody reads any more.
    pub(super) fn settle(&mut self) {
        if self.view.is_listed() {
            self.write();
        }
        self.recapture();
    }

    fn write(&mut self) {
        let now = self.now_ns();
        if let Err(error) = self.view.reconciler.collect_garbage(&mut self.view.maps, now) {
            tracing::warn!("old lists are not given back yet: {}", chain(&error));
        }
        let is_due = self.again.is_some_and(|again| again <= Instant::now());
        if !self.changed.is_empty() || is_due || self.view.reconciler.has_room() {
            let names = std::mem::take(&mut self.changed);
            self.note_health_checks(&names);
            let begun = Instant::now();
            let applied = self.view.reconciler.apply(&self.view.state, names, &mut self.view.maps, now);
            self.view.policing.note(Changed::Services);
            self.count(begun.elapsed());
            self.written(applied);
        }
        if !self.is_complete && self.view.is_complete() {
            let completed = self.view.reconciler.complete(&mut self.view.maps, now);
            self.is_complete = true;
            self.written(completed);
        }
    }

    /// What load balancers outside are told of these Services.
    fn note_health_checks(&mut self, names: &BTreeSet<Name>) {
        let Some(checks) = &mut self.health_checks else { return };
        let (state, node) = (&self.view.state, self.view.reconciler.node());
        for name in names {
            let port = state.service(name).and_then(|service| service.health_check_port);
            checks.set(
                name,
                port.map(|port| (port, Family::BOTH.map(|of| choose::ready_here(&state.slices(name), node, of)))),
            );
        }
        checks.publish();
    }

    fn count(&mut self, took: Duration) {
        let (took, reconcile) = (took.as_micros() as u64, &mut self.view.reconcile);
        reconcile.runs += 1;
        reconcile.last_us = took;
        reconcile.longest_us = reconcile.longest_us.max(took);
        reconcile.total_us += took;
        // Place i has those that took less than 2^i microseconds, the last one all that took longer.
        reconcile.durations.resize(DURATIONS, 0);
        reconcile.durations[(u64::BITS - took.leading_zeros()).min(DURATIONS as u32 - 1) as usize] += 1;
    }

    fn written(&mut self, outcome: io::Result<Outcome>) {
        match outcome {
            Ok(outcome) => {
                self.again = None;
                self.announce_problems();
                // A Service may have got the backend that sockets wait for.
                if outcome.lost_udp || self.udp_sockets_wait {
                    self.reclaimer.ask();
                }
            }
            Err(error) => {
                self.view.reconcile.failures += 1;
                self.again = Some(Instant::now() + AGAIN);
                let error = chain(&error);
                tracing::error!("the tables could not be written, again in {} s: {error}", AGAIN.as_secs());
            }
        }
    }
}
