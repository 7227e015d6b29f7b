//! Leaves out cells for which there is no time.

use super::super::notes;
use super::{Experiment, limit};

impl Experiment<'_> {
    /// Leaves out the scenario's last cells if there is no time for a verdict on all.
    pub(super) fn leave_out(&mut self) {
        let design = &self.scenario().design;
        let kept = self.budget.next(design, self.cells.len(), self.begun.elapsed(), limit(self.scenario()));
        let without = self.result.cells.split_off(kept);
        self.cells.truncate(kept);
        self.result.notes.extend(notes::left_out(&without));
    }
}
