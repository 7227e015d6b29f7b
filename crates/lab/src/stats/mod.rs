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

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Better,
    Worse,
    NoDifference,
    /// No interval can be given.
    TooFewRounds,
}

/// One variant compared with another, for one figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The first one's value divided by the second one's.
    pub ratio: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    pub verdict: Verdict,
    pub rounds: usize,
}
