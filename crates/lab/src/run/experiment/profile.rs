//! Samples where CPU time goes, after the measurement.

use super::super::trial;
use super::Experiment;
use crate::result::{ProcessProfile, Profile};
use crate::run::error::TrialError;
use crate::scenario::Restart;
use indexmap::IndexMap;

impl Experiment<'_> {
    /// One more trial of each contestant except the control, in each cell. Failures are noted.
    pub(super) fn profile(&mut self) {
        for (cell, who) in self.sampled() {
            if self.stop.asked() {
                return;
            }
            let (variant, title) = (self.contestants[who].name.clone(), self.result.cells[cell].title());
            self.progress.say(&format!("sampling {variant}, {title}"));
            match self.sample(cell, who) {
                Ok(processes) => self.result.cells[cell].profiles.push(Profile { variant, processes }),
                Err(why) => self.result.notes.push(format!("{variant}, {title}: no profile: {why}")),
            }
            if self.scenario().design.restart == Restart::Trial {
                self.standing.clear();
            }
        }
    }

    /// Pairs of cell and contestant.
    fn sampled(&self) -> Vec<(usize, usize)> {
        let all = (0..self.cells.len()).flat_map(|cell| (0..self.contestants.len()).map(move |who| (cell, who)));
        all.filter(|(cell, who)| self.takes_part(*cell, *who) && !self.contestants[*who].control).collect()
    }

    fn sample(&mut self, cell: usize, who: usize) -> Result<IndexMap<String, ProcessProfile>, TrialError> {
        let (number, load) = self.stand(cell, who)?;
        trial::profile(self.context, &self.standing[number].1, &load, &self.stop)
    }
}
