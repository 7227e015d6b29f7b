//! Drops cells if there is no time for all: some cells with a verdict are better than all cells without one.

use crate::scenario::Design;
use crate::stats::fewest;
use std::time::Duration;

/// What rounds have cost so far.
#[derive(Default)]
pub struct Budget {
    rounds: u32,
    /// Number of (cell, round) pairs.
    measured: usize,
    /// Cells of the coming round.
    cells: usize,
}

impl Budget {
    /// Call before each round: how many cells can get the rounds that a verdict needs, at the pace so far; at least one.
    pub fn next(&mut self, design: &Design, cells: usize, spent: Duration, limit: Duration) -> usize {
        self.measured += self.cells;
        let kept = self.affordable(design, cells, spent.as_secs_f64(), limit.as_secs_f64());
        (self.cells, self.rounds) = (kept, self.rounds + 1);
        kept
    }

    fn affordable(&self, design: &Design, cells: usize, spent: f64, limit: f64) -> usize {
        let needed = fewest(design.confidence) as u32;
        if self.rounds == 0 || self.rounds >= needed || design.most_rounds < needed {
            return cells;
        }
        let each = spent / self.measured as f64 * f64::from(needed - self.rounds);
        (((limit - spent).max(0.0) / each) as usize).clamp(1, cells)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of cells before each round, if a cell takes so many seconds a round.
    fn left(seconds: f64, design: &Design) -> Vec<usize> {
        let (mut budget, mut spent, mut cells) = (Budget::default(), 0.0, 4);
        let mut round = || {
            cells = budget.next(design, cells, Duration::from_secs_f64(spent), Duration::from_secs(160));
            spent += seconds * cells as f64;
            cells
        };
        (0..7).map(|_| round()).collect()
    }

    #[test]
    fn all_cells_stay_where_there_is_time() {
        assert_eq!(left(6.0, &Design::default()), [4; 7]);
    }

    #[test]
    fn a_slow_machine_measures_fewer_cells_and_those_in_time() {
        assert_eq!(left(10.0, &Design::default()), [4, 2, 2, 2, 2, 2, 2]);
        assert_eq!(left(30.0, &Design::default()), [4, 1, 1, 1, 1, 1, 1], "one at least");
    }

    #[test]
    fn where_no_verdict_is_asked_for_none_is_left_out() {
        assert_eq!(left(30.0, &Design { most_rounds: 2, ..Design::default() }), [4; 7]);
    }
}
