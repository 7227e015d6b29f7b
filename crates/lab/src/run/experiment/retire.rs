//! The end of set-ups, and what their programs report then.

use super::Experiment;

impl Experiment<'_> {
    pub(super) fn retire_all(&mut self) {
        for (who, environment) in std::mem::take(&mut self.standing) {
            for (program, bytes) in environment.retire() {
                let all = self.result.carried.entry(self.contestants[who].name.clone()).or_default();
                *all.entry(program).or_default() += bytes;
            }
        }
    }
}
