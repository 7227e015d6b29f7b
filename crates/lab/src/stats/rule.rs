//! When a cell has had rounds enough.
//!
//! It is the width alone that ends a cell. To end it once a verdict is clear would look for luck: whoever asks after every
//! round finds a difference sooner or later. A narrow interval may be luck as well, but tells nothing of the side on which it
//! lies. Of whole cells without a difference, from 6 rounds to 30, these are called so, in percent (and the mean number of
//! rounds; 2000 cells each, by `examples/coverage`):
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

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// Half the width of an interval that is narrow enough, as a part of the ratio.
    pub precision: f64,
    /// With which the comparisons are made.
    pub confidence: f64,
    pub least_rounds: usize,
    pub most_rounds: usize,
}

impl Rule {
    /// Of all judged comparisons of a cell; never if there are none. Rounds that do not count are not seen here: whoever holds
    /// rounds has to end by their own count where trials fail again and again.
    pub fn enough(&self, comparisons: &[Comparison]) -> bool {
        !comparisons.is_empty() && comparisons.iter().all(|each| self.settled(each))
    }

    fn settled(&self, comparison: &Comparison) -> bool {
        let narrow = half_width(comparison).is_some_and(|width| width <= self.precision);
        comparison.rounds >= self.most_rounds || comparison.rounds >= self.least_rounds && narrow
    }
}
