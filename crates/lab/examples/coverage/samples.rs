//! Simulated trials of a load test: pairs of figures with a known ratio.

use indexmap::IndexMap;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, LogNormal, StandardNormal, StudentT};
use sidestep_lab::result::Better;
use sidestep_lab::stats::{Comparison, Rule, compare};

pub const CONFIDENCE: f64 = 0.95;

/// The factor by which one trial differs from its true value.
pub type Noise = fn(&mut ChaCha8Rng) -> f64;

pub const NOISES: [(&str, Noise); 6] = [
    ("normal, 3 %", normal),
    ("log-normal delay", |rng| 1.0 + 0.05 * LogNormal::new(0.0, 1.0).unwrap().sample(rng)),
    ("Student's t, 3 degrees", |rng| (0.03 * StudentT::<f64>::new(3.0).unwrap().sample(rng)).exp()),
    ("3 of 10 slower by 15 %", |rng| if rng.random_bool(0.3) { 1.15 } else { 1.0 } * normal(rng).powf(1.0 / 3.0)),
    ("bursts of 50 %, 1 of 10", |rng| if rng.random_bool(0.1) { 1.5 } else { 1.0 } * normal(rng)),
    ("four values", |rng| 1.0 + 0.02 * rng.random_range(0..4) as f64),
];

pub fn normal(rng: &mut ChaCha8Rng) -> f64 {
    let deviation: f64 = StandardNormal.sample(rng);
    (0.03 * deviation).exp()
}

/// The machine gets slower by 2 % from round to round.
pub fn pairs(noise: Noise, ratio: f64, rounds: usize, rng: &mut ChaCha8Rng) -> Vec<(f64, f64)> {
    let level = |round: usize| 1000.0 * 1.02f64.powi(round as i32);
    (0..rounds).map(|round| (level(round) * ratio * noise(rng), level(round) * noise(rng))).collect()
}

pub fn compare_pairs(pairs: &[(f64, f64)]) -> Comparison {
    let side = |of: fn(&(f64, f64)) -> f64| -> IndexMap<u32, f64> { (0..).zip(pairs.iter().map(of)).collect() };
    compare(&side(|pair| pair.0), &side(|pair| pair.1), Better::Lower, CONFIDENCE).unwrap()
}

/// A whole cell: rounds until the rule ends it.
pub fn cell(rule: &Rule, noise: Noise, ratio: f64, seed: u64) -> Comparison {
    let all = pairs(noise, ratio, rule.most_rounds, &mut ChaCha8Rng::seed_from_u64(seed));
    let mut after = (rule.least_rounds..=rule.most_rounds).map(|rounds| compare_pairs(&all[..rounds]));
    after.find(|comparison| rule.enough(&[*comparison])).unwrap()
}
