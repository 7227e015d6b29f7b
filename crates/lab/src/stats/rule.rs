//! When a cell has had rounds enough.
//!
//! It is the width alone that ends a cell. To end it once a verdict is clear would look for luck: whoever asks after every
//! round finds a difference sooner or later. A narrow interval may be luck as well, but tells nothing of the side on which it
//! lies: what of a whole cell's verdicts is wrong stays below 5 in 100 (the table of `stats`).

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
    /// rounds has to end by their own count where turns fail again and again.
    pub fn enough(&self, comparisons: &[Comparison]) -> bool {
        !comparisons.is_empty() && comparisons.iter().all(|each| self.settled(each))
    }

    fn settled(&self, comparison: &Comparison) -> bool {
        let narrow = half_width(comparison).is_some_and(|width| width <= self.precision);
        comparison.rounds >= self.most_rounds || comparison.rounds >= self.least_rounds && narrow
    }
}
