//! Plain stand-ins for what `stats` will offer; gone when it does.

use crate::result::Better;
use crate::stats::{Comparison, Interval, Verdict};
use indexmap::IndexMap;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BoxPlot {
    pub p5: f64,
    pub p25: f64,
    pub median: f64,
    pub mean: f64,
    pub p75: f64,
    pub p95: f64,
}

const RESAMPLES: usize = 600;
const FEWEST: usize = 5;

pub fn box_of(values: &[f64]) -> Option<BoxPlot> {
    if values.is_empty() {
        return None;
    }
    let all = sorted(values);
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    let at = |part| quantile(&all, part);
    Some(BoxPlot { p5: at(0.05), p25: at(0.25), median: at(0.5), mean, p75: at(0.75), p95: at(0.95) })
}

pub fn median_interval(values: &[f64], confidence: f64, seed: u64) -> Option<(f64, Interval)> {
    let middle = box_of(values)?.median;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    Some((middle, interval((0..RESAMPLES).map(|_| median(&resample(values, &mut rng))), confidence)))
}

pub fn compare(
    own: &IndexMap<u32, f64>,
    base: &IndexMap<u32, f64>,
    better: Better,
    confidence: f64,
    seed: u64,
) -> Option<Comparison> {
    let logs: Vec<f64> = own.iter().filter_map(|(round, one)| Some((one / base.get(round)?).ln())).collect();
    let (middle, around) = median_interval(&logs, confidence, seed)?;
    let around = Interval { low: around.low.exp(), high: around.high.exp() };
    Some(judged(middle.exp(), around, logs.len(), better))
}

pub fn compare_unpaired(own: &[f64], base: &[f64], better: Better, confidence: f64, seed: u64) -> Option<Comparison> {
    let ratio = box_of(own)?.median / box_of(base)?.median;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let ratios = (0..RESAMPLES).map(|_| median(&resample(own, &mut rng)) / median(&resample(base, &mut rng)));
    Some(judged(ratio, interval(ratios, confidence), own.len().min(base.len()), better))
}

fn judged(ratio: f64, around: Interval, rounds: usize, better: Better) -> Comparison {
    if rounds < FEWEST {
        return Comparison { ratio, interval: None, verdict: Verdict::TooFewRounds, rounds };
    }
    let verdict = match (around.low > 1.0, around.high < 1.0, better) {
        (true, _, Better::Higher) | (_, true, Better::Lower) => Verdict::Better,
        (true, _, _) | (_, true, _) => Verdict::Worse,
        _ => Verdict::NoDifference,
    };
    Comparison { ratio, interval: Some(around), verdict, rounds }
}

fn interval(medians: impl Iterator<Item = f64>, confidence: f64) -> Interval {
    let all = sorted(&medians.collect::<Vec<_>>());
    Interval { low: quantile(&all, (1.0 - confidence) / 2.0), high: quantile(&all, (1.0 + confidence) / 2.0) }
}

fn resample(values: &[f64], rng: &mut ChaCha8Rng) -> Vec<f64> {
    values.iter().map(|_| values[rng.random_range(0..values.len())]).collect()
}

fn median(values: &[f64]) -> f64 {
    quantile(&sorted(values), 0.5)
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut all = values.to_vec();
    all.sort_by(f64::total_cmp);
    all
}

fn quantile(sorted: &[f64], part: f64) -> f64 {
    let place = part * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}
