//! The smoothed bootstrap of a median, computed without drawing samples.
//!
//! A resample draws as many values as there are, with replacement, and adds normal noise to each; without noise its median could be
//! only one of few values. The noise's standard deviation is that of the values divided by the square root of their number, and a
//! little more (BLUR). (The standard deviation is estimated from the median distance to the median, which is robust against
//! bursts.) The distribution of the medians of such resamples is known: a Beta distribution of the smoothed distribution's parts.
//! So the interval is calculated. It is the limit of infinitely many resamples, and needs no seed.
//!
//! The part cut off at each end is Hesterberg's. For few values percentile intervals are too narrow, as if they used normal
//! quantiles instead of Student's, and divided by n instead of n - 1; the ends are moved outwards by just that.

use super::Interval;
use super::median::spread;
use statrs::distribution::{Beta, ContinuousCDF, Normal, StudentsT};

/// Number of bisections: a millionth of the first range is less than any figure shows. (A loop until both ends are close enough
/// would never end if the noise is no more than rounding errors.)
const STEPS: usize = 20;

/// Factor of the noise. With 1, intervals of whole cells with bursts, ended by the width of their interval, contain the true value
/// in 95.8 of 100 cases; with this factor in 96.4, for one round more. (6000 cells, precision 2.5 %.)
const BLUR: f64 = 1.5;

/// The interval of the median; None: too few values.
pub fn interval(values: &[f64], confidence: f64) -> Option<Interval> {
    if values.len() < fewest(confidence) {
        return None;
    }
    let part = part_below(values.len(), confidence);
    let opposite: Vec<f64> = values.iter().map(|value| -value).collect();
    // The upper end is computed from the negated values, so that exchanging own and base changes only the sign.
    Some(Interval { low: smoothed(values, part), high: -smoothed(&opposite, part) })
}

/// How many values an interval needs. All n values lie on the same side of the true median with probability 1 / 2^(n-1), so
/// without knowledge of their distribution fewer values cannot give this confidence.
pub fn fewest(confidence: f64) -> usize {
    (2..64).find(|&count| 0.5f64.powi(count - 1) <= 1.0 - confidence).map_or(usize::MAX, |count| count as usize)
}

/// The part of the smoothed distribution that lies below the interval.
fn part_below(count: usize, confidence: f64) -> f64 {
    let (count, upper) = (count as f64, (1.0 + confidence) / 2.0);
    let student = StudentsT::new(0.0, 1.0, count - 1.0).expect("two values at least").inverse_cdf(upper);
    let medians = Normal::standard().cdf(-student * (count / (count - 1.0)).sqrt());
    let middle = (count + 1.0) / 2.0;
    Beta::new(middle, middle).expect("positive").inverse_cdf(medians)
}

/// The value below which `part` of the smoothed distribution lies.
fn smoothed(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let noise = BLUR * spread(values) / (values.len() as f64).sqrt();
    // Over half of the values are equal: no noise.
    if noise == 0.0 {
        return sorted[(part * values.len() as f64) as usize];
    }
    bisect(&sorted, noise, part)
}

fn bisect(sorted: &[f64], noise: f64, part: f64) -> f64 {
    let normal = Normal::standard();
    let below =
        |place: f64| sorted.iter().map(|value| normal.cdf((place - value) / noise)).sum::<f64>() / sorted.len() as f64;
    // Beyond 8 standard deviations the noise is negligible.
    let (mut low, mut high) = (sorted[0] - 8.0 * noise, sorted[sorted.len() - 1]);
    for _ in 0..STEPS {
        let middle = (low + high) / 2.0;
        if below(middle) < part { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}
