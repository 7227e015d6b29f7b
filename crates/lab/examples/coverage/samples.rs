//! What turns of a load test look like: pairs of figures, of which the one's true ratio to the other is 1.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, LogNormal, StandardNormal, StudentT};

/// One of the two turns of a round: what is multiplied with its true value.
pub type Noise = fn(&mut ChaCha8Rng) -> f64;

/// Of each turn, by itself.
pub const NOISES: [(&str, Noise); 6] = [
    ("normal", |rng| (0.03 * normal(rng)).exp()),
    ("log-normal delay", |rng| 1.0 + 0.05 * LogNormal::new(0.0, 1.0).unwrap().sample(rng)),
    ("t, 3 degrees", |rng| (0.03 * StudentT::<f64>::new(3.0).unwrap().sample(rng)).exp()),
    ("bimodal", |rng| if rng.random_bool(0.3) { 1.15 } else { 1.0 } * (0.01 * normal(rng)).exp()),
    ("bursts", |rng| if rng.random_bool(0.1) { 1.5 } else { 1.0 } * (0.03 * normal(rng)).exp()),
    ("few values", |rng| 1.0 + 0.02 * rng.random_range(0..4) as f64),
];

fn normal(rng: &mut ChaCha8Rng) -> f64 {
    StandardNormal.sample(rng)
}

/// Rounds of which each is slower than the one before: common to both turns, so that it does not count.
pub fn rounds(noise: Noise, ratio: f64, drift: f64, count: usize, rng: &mut ChaCha8Rng) -> Vec<(f64, f64)> {
    let level = |round: usize| 1000.0 * (drift * round as f64).exp();
    (0..count).map(|round| (level(round) * ratio * noise(rng), level(round) * noise(rng))).collect()
}
