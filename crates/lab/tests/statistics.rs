//! Verdicts for figures whose true values are known. Seeds are fixed; other seeds give the same rates, as `examples/coverage` shows
//! with more trials.

use crate::samples::{CONFIDENCE, NOISES, Noise, cell, compare_pairs, normal, pairs};
use indexmap::IndexMap;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use sidestep_lab::result::Better;
use sidestep_lab::stats::{
    Comparison, Interval, Rule, Verdict, box_of, compare, compare_unpaired, fewest, half_width, median_interval,
};

/// The percentage of trials for which it is true.
fn share(trials: u64, is: impl Fn(u64) -> bool) -> f64 {
    100.0 * (0..trials).filter(|&seed| is(seed)).count() as f64 / trials as f64
}

fn after(rounds: usize, noise: Noise, ratio: f64, seed: u64) -> Comparison {
    compare_pairs(&pairs(noise, ratio, rounds, &mut ChaCha8Rng::seed_from_u64(seed)))
}

fn holds(comparison: &Comparison, ratio: f64) -> bool {
    comparison.interval.is_some_and(|Interval { low, high }| low <= ratio && ratio <= high)
}

fn rule(precision: f64) -> Rule {
    Rule { precision, confidence: CONFIDENCE, least_rounds: 6, most_rounds: 30 }
}

fn map(values: &[f64]) -> IndexMap<u32, f64> {
    (0..).zip(values.iter().copied()).collect()
}

#[test]
fn no_difference_is_called_none() {
    for (name, noise) in NOISES {
        for rounds in [6, 10, 20] {
            let none = share(2000, |seed| after(rounds, noise, 1.0, seed).verdict == Verdict::NoDifference);
            assert!(none >= 95.0, "{name}, {rounds} rounds: {none} %");
        }
    }
}

#[test]
fn no_difference_is_called_none_whenever_it_stops() {
    for (name, noise) in NOISES {
        let none = share(1000, |seed| cell(&rule(0.025), noise, 1.0, seed).verdict == Verdict::NoDifference);
        assert!(none >= 95.0, "{name}: {none} %");
    }
}

#[test]
fn the_interval_holds_the_true_ratio() {
    for ratio in [0.8, 1.25] {
        for (name, noise) in NOISES {
            let held = share(1500, |seed| holds(&after(10, noise, ratio, seed), ratio));
            assert!(held >= 95.0, "{name}, {ratio}: {held} %");
        }
    }
}

#[test]
fn five_percent_are_found() {
    let found = share(1000, |seed| after(20, normal, 1.05, seed).verdict == Verdict::Worse);
    assert!(found >= 90.0, "20 rounds: {found} %");
    let found = share(1000, |seed| cell(&rule(0.025), normal, 0.95, seed).verdict == Verdict::Better);
    assert!(found >= 95.0, "until it stops: {found} %");
}

#[test]
fn it_stops_when_it_is_narrow_enough() {
    let all: Vec<Comparison> = (0..100).map(|seed| cell(&rule(0.025), normal, 1.0, seed)).collect();
    assert!(all.iter().all(|each| each.rounds == 30 || half_width(each).unwrap() <= 0.025));
    assert!(all.iter().any(|each| each.rounds < 20));
    assert!(!rule(0.025).enough(&[]));
    // A single wide interval keeps the cell going.
    let wide = Comparison { rounds: 10, interval: Some(Interval { low: 0.9, high: 1.1 }), ..all[0] };
    assert!(rule(0.025).enough(&all) && !rule(0.025).enough(&[all[0], wide]));
}

/// Medians of independent values, with different numbers on each side.
#[test]
fn unpaired_values_are_compared() {
    let trials =
        |count, ratio: f64, rng: &mut ChaCha8Rng| -> Vec<f64> { (0..count).map(|_| ratio * normal(rng)).collect() };
    let compare_pairs = |ratio, seed| {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        compare_unpaired(&trials(12, ratio, rng), &trials(8, 1.0, rng), Better::Lower, CONFIDENCE).unwrap()
    };
    let none = share(1000, |seed| compare_pairs(1.0, seed).verdict == Verdict::NoDifference);
    let held = share(1000, |seed| holds(&compare_pairs(1.25, seed), 1.25));
    assert!(none >= 95.0 && held >= 95.0, "{none} % {held} %");
    assert!(share(200, |seed| compare_pairs(0.8, seed).verdict == Verdict::Better) == 100.0);
}

#[test]
fn exchanging_the_two_trials_it_over() {
    for (_, noise) in NOISES {
        let all = pairs(noise, 1.04, 11, &mut ChaCha8Rng::seed_from_u64(3));
        let exchanged: Vec<(f64, f64)> = all.iter().map(|&(own, base)| (base, own)).collect();
        let inverted: Vec<(f64, f64)> = all.iter().map(|(own, base)| (1.0 / own, 1.0 / base)).collect();
        let one = compare_pairs(&all);
        for other in [compare_pairs(&exchanged), compare_pairs(&inverted)] {
            let (own, other_interval) = (one.interval.unwrap(), other.interval.unwrap());
            assert!((one.ratio * other.ratio - 1.0).abs() < 1e-9);
            assert!(
                (own.low * other_interval.high - 1.0).abs() < 1e-9
                    && (own.high * other_interval.low - 1.0).abs() < 1e-9
            );
        }
    }
}

/// A shorter time is a higher rate: both have the same verdict.
#[test]
fn a_rate_is_better_when_its_time_is() {
    let all = pairs(normal, 0.8, 10, &mut ChaCha8Rng::seed_from_u64(5));
    let (own, base): (Vec<f64>, Vec<f64>) = all.into_iter().unzip();
    let inverse = |values: &[f64]| map(&values.iter().map(|value| 1.0 / value).collect::<Vec<_>>());
    let verdict = |own: &_, base: &_, better| compare(own, base, better, CONFIDENCE).unwrap().verdict;
    assert_eq!(verdict(&map(&own), &map(&base), Better::Lower), Verdict::Better);
    assert_eq!(verdict(&inverse(&own), &inverse(&base), Better::Higher), Verdict::Better);
    assert_eq!(verdict(&map(&own), &map(&base), Better::Higher), Verdict::Worse);
}

#[test]
fn rounds_without_a_ratio_do_not_count() {
    let base = map(&[1.0; 12]);
    let mut own = map(&[2.0, 0.0, -1.0, f64::NAN, f64::INFINITY, 2.0, 2.0, 2.0, 2.0, 2.0]);
    own.insert(99, 2.0);
    let judged = compare(&own, &base, Better::Lower, CONFIDENCE).unwrap();
    assert_eq!((judged.rounds, judged.ratio, judged.verdict), (6, 2.0, Verdict::Worse));
    assert_eq!(compare(&map(&[0.0; 9]), &base, Better::Lower, CONFIDENCE), None);
    assert_eq!(compare_unpaired(&[1.0], &[f64::NAN], Better::Lower, CONFIDENCE), None);
}

#[test]
fn too_few_rounds_have_no_interval() {
    assert_eq!([0.9, 0.95, 0.99].map(fewest), [5, 6, 8]);
    let judged = compare(&map(&[2.0; 5]), &map(&[1.0; 5]), Better::Lower, CONFIDENCE).unwrap();
    assert_eq!((judged.verdict, judged.interval, judged.ratio), (Verdict::TooFewRounds, None, 2.0));
    assert_eq!(half_width(&judged), None);
    assert_eq!(median_interval(&[1.0; 5], CONFIDENCE), None);
}

/// Values that are equal, or nearly so, also have an interval.
#[test]
fn values_without_noise_have_an_interval() {
    assert_eq!(median_interval(&[3.0; 8], CONFIDENCE), Some((3.0, Interval { low: 3.0, high: 3.0 })));
    let same = compare(&map(&[3.0; 8]), &map(&[3.0; 8]), Better::Lower, CONFIDENCE).unwrap();
    assert_eq!(same.verdict, Verdict::NoDifference);
    let nearly: Vec<f64> = (0..9).map(|place| if place % 2 == 0 { 0.1 + 0.2 } else { 0.3 }).collect();
    assert!(median_interval(&nearly, CONFIDENCE).is_some());
}

#[test]
fn boxes() {
    let values: Vec<f64> = (0..=100).rev().map(f64::from).collect();
    let drawn = box_of(&values).unwrap();
    assert_eq!(
        [drawn.p5, drawn.p25, drawn.median, drawn.mean, drawn.p75, drawn.p95],
        [5.0, 25.0, 50.0, 50.0, 75.0, 95.0]
    );
    assert_eq!(box_of(&[f64::NAN, 4.0]).unwrap().p95, 4.0);
    assert_eq!(box_of(&[f64::NAN]), None);
}
