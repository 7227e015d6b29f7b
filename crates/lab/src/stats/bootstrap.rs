//! The smoothed bootstrap of a median, without drawing anything.
//!
//! A resample draws as many values as there are, with replacement, and adds normal noise to each, without which its median
//! could only be one of few values. The noise's standard deviation is that of the values (by their median distance from the
//! median, which bursts do not upset) divided by the square root of their number, and a little more. How medians of such resamples are
//! distributed is known (a Beta distribution of the smoothed distribution's parts), so that an interval is calculated: it is
//! what resampling would come to after infinitely many resamples, and needs no seed.
//!
//! The part that is cut off at each end is Hesterberg's: percentiles are too narrow for few values as if one took normal
//! quantiles where Student's belong and divided by n where n - 1 belongs, and are moved outwards by just that.

use super::Interval;
use super::median::spread;
use statrs::distribution::{Beta, ContinuousCDF, Normal, StudentsT};

/// Halvings: a millionth of where the search begins is less than any figure tells. (Waiting until the two ends are near enough
/// would never end where the noise is no more than what rounding left.)
const STEPS: usize = 20;

/// With 1 whole cells with bursts that end by the width of their interval are right in 96.0 of 100 cases, with this in 96.6, for
/// half a round more. (6000 cells, precision 2.5 %.)
const BLUR: f64 = 1.5;

/// Of the median. None if there are too few values for any interval.
pub fn interval(values: &[f64], confidence: f64) -> Option<Interval> {
    if values.len() < fewest(confidence) {
        return None;
    }
    let part = part_below(values.len(), confidence);
    let opposite: Vec<f64> = values.iter().map(|value| -value).collect();
    // By the same way from both sides, so that exchanging own and base changes nothing but the sign.
    Some(Interval { low: smoothed(values, part), high: -smoothed(&opposite, part) })
}

/// Values that an interval needs. That all of n lie on the same side of the true median happens by chance once in 2^(n-1)
/// times: from fewer nobody who knows nothing of their distribution can tell more.
pub fn fewest(confidence: f64) -> usize {
    (2..64).find(|&count| 0.5f64.powi(count - 1) <= 1.0 - confidence).map_or(usize::MAX, |count| count as usize)
}

/// Part of the smoothed distribution that lies below the interval.
fn part_below(count: usize, confidence: f64) -> f64 {
    let (count, upper) = (count as f64, (1.0 + confidence) / 2.0);
    let student = StudentsT::new(0.0, 1.0, count - 1.0).expect("two values at least").inverse_cdf(upper);
    let medians = Normal::standard().cdf(-student * (count / (count - 1.0)).sqrt());
    let middle = (count + 1.0) / 2.0;
    Beta::new(middle, middle).expect("positive").inverse_cdf(medians)
}

/// Below which `part` of the values lies when each is blurred by noise.
fn smoothed(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let noise = BLUR * spread(values) / (values.len() as f64).sqrt();
    // More than half of the values are the same: no blur.
    if noise == 0.0 {
        return sorted[(part * values.len() as f64) as usize];
    }
    bisect(&sorted, noise, part)
}

fn bisect(sorted: &[f64], noise: f64, part: f64) -> f64 {
    let normal = Normal::standard();
    let below =
        |place: f64| sorted.iter().map(|value| normal.cdf((place - value) / noise)).sum::<f64>() / sorted.len() as f64;
    // Beyond 8 standard deviations there is nothing that counts.
    let (mut low, mut high) = (sorted[0] - 8.0 * noise, sorted[sorted.len() - 1]);
    for _ in 0..STEPS {
        let middle = (low + high) / 2.0;
        if below(middle) < part { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}
