//! After the measurement: where everybody's CPU time goes.

use super::super::trial;
use super::Experiment;
use crate::result::{ProcessProfile, Profile};
use crate::run::error::TrialError;
use crate::scenario::Restart;
use indexmap::IndexMap;

impl Experiment<'_> {
    /// One more trial of everybody in each cell, but for the control. What fails is in the notes.
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

    /// (cell, contestant)
    fn sampled(&self) -> Vec<(usize, usize)> {
        let all = (0..self.cells.len()).flat_map(|cell| (0..self.contestants.len()).map(move |who| (cell, who)));
        all.filter(|(cell, who)| self.takes_part(*cell, *who) && !self.contestants[*who].control).collect()
    }

    fn sample(&mut self, cell: usize, who: usize) -> Result<IndexMap<String, ProcessProfile>, TrialError> {
        let (number, load) = self.stand(cell, who)?;
        trial::profile(self.context, &self.standing[number].1, &load, &self.stop)
    }
}
