//! Medians, percentiles, and the box that a plot draws of them.

use serde::{Deserialize, Serialize};

/// The median of at least one value; reorders the values.
pub fn median(values: &mut [f64]) -> f64 {
    let (lower, &mut upper, _) = values.select_nth_unstable_by(values.len() / 2, f64::total_cmp);
    let below = lower.iter().copied().max_by(f64::total_cmp);
    if (lower.len() * 2) == values.len() { (below.unwrap_or(upper) + upper) / 2.0 } else { upper }
}

/// The value below which `part` of the sorted values lie.
pub fn percentile(sorted: &[f64], part: f64) -> f64 {
    let place = part * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + place.fract() * (above - below)
}

/// The standard deviation of a normal distribution with the same median distance from the median.
pub fn spread(values: &[f64]) -> f64 {
    let middle = median(&mut values.to_vec());
    let mut distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    // The third quartile of the normal distribution is 0.6745 standard deviations from its middle.
    median(&mut distances) / 0.674_489_750_196_082
}

/// Percentiles of a variant's trials, in the unit of the figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BoxPlot {
    /// End of the lower whisker.
    pub p5: f64,
    /// Lower end of the box.
    pub p25: f64,
    /// The line in the box.
    pub median: f64,
    /// Of all values, outliers too.
    pub mean: f64,
    /// Upper end of the box.
    pub p75: f64,
    /// End of the upper whisker.
    pub p95: f64,
}

/// Values that are not numbers do not count; None: none is left.
pub fn box_of(values: &[f64]) -> Option<BoxPlot> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let mean = sorted.iter().sum::<f64>() / sorted.len() as f64;
    let at = |part| percentile(&sorted, part);
    (!sorted.is_empty()).then(|| BoxPlot {
        p5: at(0.05),
        p25: at(0.25),
        median: at(0.5),
        mean,
        p75: at(0.75),
        p95: at(0.95),
    })
}
