//! When a cell has had rounds enough.

use super::{Comparison, half_width};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// Half the width of an interval that is narrow enough, as a part of the ratio.
    pub precision: f64,
    pub confidence: f64,
    pub least_rounds: usize,
    pub most_rounds: usize,
}

impl Rule {
    pub fn enough(&self, comparisons: &[Comparison]) -> bool {
        !comparisons.is_empty() && comparisons.iter().all(|each| self.settled(each))
    }

    fn settled(&self, comparison: &Comparison) -> bool {
        let narrow = half_width(comparison).is_some_and(|width| width <= self.precision);
        comparison.rounds >= self.most_rounds || comparison.rounds >= self.least_rounds && narrow
    }
}
