//! Medians with confidence intervals, and comparisons of two variants.

mod bootstrap;
mod compare;
mod median;
mod rule;

pub use bootstrap::fewest;
pub use compare::{compare, compare_unpaired, half_width, median_interval};
pub use median::{BoxPlot, box_of};
pub use rule::Rule;

use serde::{Deserialize, Serialize};

/// A confidence interval, of a ratio or of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// In the unit of what is estimated; as a ratio a plain factor, such as 0.97.
    pub low: f64,
    /// Never less than `low`.
    pub high: f64,
}

/// What a comparison's interval says, by the figure's [`Better`](crate::result::Better).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The whole interval is on the better side of 1.
    Better,
    /// The whole interval is on the worse side of 1.
    Worse,
    /// The interval contains 1. A small difference may exist: the interval says how small.
    NoDifference,
    /// No interval can be given.
    TooFewRounds,
}

/// One variant compared with another, for one figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The first one's value divided by the second one's.
    pub ratio: f64,
    /// Of `ratio`. None: there are too few rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// Follows from `interval`.
    pub verdict: Verdict,
    /// How many rounds have a value for both variants.
    pub rounds: usize,
}
