//! A whole cell: round by round, until the rule says that it is enough.
use crate::samples::{Noise, rounds};
use indexmap::IndexMap;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use sidestep_lab::result::Better;
use sidestep_lab::stats::{Comparison, Rule, compare};

pub fn cell(rule: Rule, noise: Noise, ratio: f64, seed: u64) -> Comparison {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let all = rounds(noise, ratio, 0.02, rule.most_rounds, &mut rng);
    let first = |count: usize, which: fn(&(f64, f64)) -> f64| -> IndexMap<u32, f64> {
        (0..).zip(all[..count].iter().map(which)).collect()
    };
    let after = |count| {
        compare(&first(count, |pair| pair.0), &first(count, |pair| pair.1), Better::Lower, rule.confidence).unwrap()
    };
    (rule.least_rounds..).map(after).find(|each| rule.enough(&[*each])).unwrap()
}
