//! Medians with confidence intervals, and what may be said of two variants.

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

/// One variant beside another, by one figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Of the one to the other.
    pub ratio: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    pub verdict: Verdict,
    pub rounds: usize,
}
pub struct Rule {
    pub precision: f64,
    pub confidence: f64,
    pub least_rounds: usize,
    pub most_rounds: usize,
}
impl Rule {
    pub fn enough(&self, c: &[Comparison]) -> bool {
        c.iter().all(|c| c.rounds >= self.least_rounds) && !c.is_empty()
    }
}
pub fn half_width(_: &Comparison) -> Option<f64> {
    None
}
pub fn compare(
    own: &indexmap::IndexMap<u32, f64>,
    base: &indexmap::IndexMap<u32, f64>,
    _: crate::result::Better,
    _: f64,
    _: u64,
) -> Option<Comparison> {
    Some(Comparison {
        ratio: own.values().next()? / base.values().next()?,
        interval: None,
        verdict: Verdict::TooFewRounds,
        rounds: own.len().min(base.len()),
    })
}
