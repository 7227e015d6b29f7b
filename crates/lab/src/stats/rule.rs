//! When a cell has enough rounds.
//!
//! Only the width of the interval ends a cell. Ending it once a verdict is clear would favour luck: a check after every round finds
//! a difference sooner or later. A narrow interval may be luck as well, but does not depend on the side on which it lies. The table
//! is for whole cells without a difference, with 6 to 30 rounds: how many percent get the verdict "no difference", and in brackets
//! the mean number of rounds (2000 cells each, by `examples/coverage`):
//!
//! | precision | normal, 3 % | log-normal | Student's t, 3 | 3 of 10 slow | bursts | four values |
//! |---|---|---|---|---|---|---|
//! | 1.0 % | 97.9 (30) | 98.3 (30) | 97.5 (30) | 97.9 (29) | 96.8 (30) | 97.5 (29) |
//! | 1.5 % | 97.4 (29) | 98.2 (30) | 97.5 (30) | 98.2 (25) | 96.6 (30) | 97.4 (26) |
//! | 2.0 % | 97.2 (25) | 98.2 (29) | 97.0 (29) | 98.5 (22) | 96.3 (29) | 98.2 (19) |
//! | 2.5 % | 97.9 (20) | 98.2 (28) | 96.6 (26) | 98.7 (20) | 96.0 (26) | 98.0 (14) |
//! | 3.0 % | 98.0 (16) | 97.8 (26) | 96.8 (22) | 98.7 (19) | 96.7 (22) | 98.8 (11) |
//! | 4.0 % | 98.2 (11) | 98.0 (20) | 97.2 (15) | 98.8 (18) | 97.2 (16) | 99.3 (8) |
//! | 5.0 % | 98.5 (9) | 98.6 (16) | 98.0 (12) | 98.8 (18) | 97.7 (13) | 99.3 (7) |
//! | 8.0 % | 98.6 (6) | 98.7 (10) | 98.8 (8) | 98.8 (11) | 97.9 (10) | 99.5 (6) |

use super::{Comparison, half_width};

/// Taken from a scenario's [`Design`](crate::scenario::Design).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// Half the width of a sufficiently narrow interval, relative to the ratio.
    pub precision: f64,
    /// Confidence of the comparisons' intervals.
    pub confidence: f64,
    /// A cell with fewer rounds goes on, however precise it is.
    pub least_rounds: usize,
    /// A comparison with so many rounds counts as precise.
    pub most_rounds: usize,
}

impl Rule {
    /// Whether all judged comparisons of a cell are precise enough; false if there are none. Rounds that do not count are not
    /// visible here: if trials fail again and again, the caller must end the cell by its own count.
    pub fn enough(&self, comparisons: &[Comparison]) -> bool {
        !comparisons.is_empty() && comparisons.iter().all(|each| self.settled(each))
    }

    fn settled(&self, comparison: &Comparison) -> bool {
        let narrow = half_width(comparison).is_some_and(|width| width <= self.precision);
        comparison.rounds >= self.most_rounds || comparison.rounds >= self.least_rounds && narrow
    }
}
