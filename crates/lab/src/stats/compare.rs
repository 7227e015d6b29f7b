//! Better, worse or no difference.

use super::bootstrap::interval;
use super::median::median;
use super::{Comparison, Interval, Verdict};
use crate::result::Better;
use indexmap::IndexMap;

/// Of the rounds that both have: round -> value. The two trials of a round are next to each other in time, so that a drift of
/// the machine is in both and not in their ratio, whose logarithm is what is looked at. None if there is no such round.
///
/// A round in which either is zero, negative or no number has no ratio and does not count, as if one of its trials had failed.
///
/// The estimate is the median of the logarithms, the interval that of its smoothed bootstrap, which `bootstrap.rs` describes.
/// It was chosen by simulation (2000 trials each; the worst of six noises, among them bursts and slow process instances; in
/// brackets half the width for normal noise of 3 % a trial, in percent of the ratio). Of those that claim 95 %:
///
/// | interval | 6 rounds | 10 rounds | 20 rounds |
/// |---|---|---|---|
/// | smoothed bootstrap, expanded percentiles (chosen) | 98.2 (± 6.3) | 98.3 (± 4.2) | 97.6 (± 2.6) |
/// | bootstrap, percentiles | 92.8 (± 4.0) | 93.3 (± 3.1) | 93.5 (± 2.2) |
/// | bootstrap, expanded percentiles | 96.2 (± 5.3) | 96.5 (± 3.7) | 95.2 (± 2.4) |
/// | bootstrap, BCa | 92.8 (± 3.9) | 93.4 (± 3.1) | 93.6 (± 2.2) |
/// | Hodges and Lehmann's estimate, percentiles | 86.3 (± 3.0) | 91.3 (± 2.7) | 92.5 (± 1.9) |
/// | Hodges and Lehmann's estimate, expanded | 93.0 (± 4.0) | 96.0 (± 3.3) | 94.7 (± 2.1) |
/// | mean without a fifth at each end, expanded | 94.8 (± 4.6) | 97.0 (± 3.4) | 95.2 (± 2.2) |
/// | the same mean, bootstrap-t | 97.6 (± 46.5) | 96.0 (± 5.3) | 92.2 (± 2.4) |
/// | ranks of signs, exact (no bootstrap) | 96.5 (± 5.4) | 94.5 (± 3.0) | 95.0 (± 2.0) |
///
/// The chosen one has to hold more than it claims, because a cell ends when the interval is narrow enough, which is so sooner
/// where it is too narrow (see `Rule`). `examples/coverage` makes the tables.
///
/// Each comparison is right by itself so often; of many some are wrong. And rounds have to be independent: a process that is
/// slower for as long as it lives must be started anew in each round.
pub fn compare(
    own: &IndexMap<u32, f64>,
    base: &IndexMap<u32, f64>,
    better: Better,
    confidence: f64,
) -> Option<Comparison> {
    let logs: Vec<f64> =
        own.iter().filter_map(|(round, own)| Some(log_of(*own)? - log_of(*base.get(round)?)?)).collect();
    Some(judged(median_of(&logs)?, interval(&logs, confidence), better, logs.len()))
}

/// The same of values of which none belongs to one of the other's: the ratio of their medians, with an interval from those
/// of the two (by the squares of their arms: Zou and Donner, 2008). `rounds` is the smaller number of values, those not counted
/// that are zero, negative or no numbers; None if a side has none.
pub fn compare_unpaired(own: &[f64], base: &[f64], better: Better, confidence: f64) -> Option<Comparison> {
    let (own, base) = (logs_of(own), logs_of(base));
    let (middle, other) = (median_of(&own)?, median_of(&base)?);
    let both = interval(&own, confidence).zip(interval(&base, confidence));
    let interval = both.map(|(own, base)| Interval {
        low: middle - other - (middle - own.low).hypot(base.high - other),
        high: middle - other + (own.high - middle).hypot(other - base.low),
    });
    Some(judged(middle - other, interval, better, own.len().min(base.len())))
}

/// Of one variant's figure by itself. Values that are no numbers do not count; None if there are too few.
pub fn median_interval(values: &[f64], confidence: f64) -> Option<(f64, Interval)> {
    let values: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    Some((median_of(&values)?, interval(&values, confidence)?))
}

/// Half of the interval's width, as a part of the ratio: by which precision is judged. None where there is no interval.
pub fn half_width(comparison: &Comparison) -> Option<f64> {
    comparison.interval.map(|Interval { low, high }| (high - low) / 2.0 / comparison.ratio)
}

fn log_of(value: f64) -> Option<f64> {
    (value > 0.0 && value.is_finite()).then(|| value.ln())
}

fn logs_of(values: &[f64]) -> Vec<f64> {
    values.iter().filter_map(|&value| log_of(value)).collect()
}

fn median_of(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| median(&mut values.to_vec()))
}

fn judged(middle: f64, logs: Option<Interval>, better: Better, rounds: usize) -> Comparison {
    let interval = logs.map(|logs| Interval { low: logs.low.exp(), high: logs.high.exp() });
    Comparison { ratio: middle.exp(), interval, verdict: verdict(interval, better), rounds }
}

fn verdict(interval: Option<Interval>, better: Better) -> Verdict {
    match interval {
        None => Verdict::TooFewRounds,
        Some(Interval { low, high }) if low <= 1.0 && 1.0 <= high => Verdict::NoDifference,
        Some(Interval { low, .. }) if (low > 1.0) == (better == Better::Higher) => Verdict::Better,
        Some(_) => Verdict::Worse,
    }
}
