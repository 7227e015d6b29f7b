//! How often intervals of 95 % contain the true value: computes the tables in the documentation of `sidestep_lab::stats`.
//!
//! `cargo run --release -p sidestep-lab --example coverage [trials]`. 2000 trials take some minutes.

mod candidates;
mod samples;

use candidates::METHODS;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use samples::{CONFIDENCE, NOISES, Noise, cell, pairs};
use sidestep_lab::stats::{Comparison, Rule, Verdict};

fn main() {
    let trials = std::env::args().nth(1).map_or(1000, |word| word.parse().expect("a number of trials"));
    stopping(trials);
    intervals(trials);
}

fn intervals(trials: u64) {
    println!(
        "\nThe worst coverage of all noises in percent, and half the width for normal noise, in percent of the ratio\n"
    );
    println!("| interval | 6 rounds | 10 rounds | 20 rounds |\n|---|---|---|---|");
    for (name, method) in METHODS {
        let columns = [6, 10, 20].map(|rounds| {
            let each = NOISES.map(|(_, noise)| held(*method, noise, rounds, trials));
            format!("{:.1} (± {:.1})", each.map(|(held, _)| held).into_iter().fold(100.0, f64::min), each[0].1)
        });
        println!("| {name} | {} |", columns.join(" | "));
    }
}

/// Percentage of trials in which the interval contains the true value, and half of the mean width in percent.
fn held(method: candidates::Method, noise: Noise, rounds: usize, trials: u64) -> (f64, f64) {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let ends: Vec<(f64, f64)> =
        (0..trials).map(|_| method(&logs(noise, rounds, &mut rng), CONFIDENCE, &mut rng)).collect();
    let held = ends.iter().filter(|(low, high)| *low <= 0.0 && 0.0 <= *high).count();
    let width: f64 = ends.iter().map(|(low, high)| (high - low) / 2.0).sum();
    (100.0 * held as f64 / trials as f64, 100.0 * width / trials as f64)
}

fn logs(noise: Noise, rounds: usize, rng: &mut ChaCha8Rng) -> Vec<f64> {
    pairs(noise, 1.0, rounds, rng).iter().map(|(own, base)| (own / base).ln()).collect()
}

fn stopping(trials: u64) {
    println!("Percent of whole cells in which no difference is called none, and the mean number of rounds\n");
    println!("| precision | {} |", NOISES.map(|(name, _)| name).join(" | "));
    println!("|---|{}", "---|".repeat(NOISES.len()));
    for precision in [0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.08] {
        let columns = NOISES.map(|(_, noise)| none(precision, noise, trials));
        println!("| {:.1} % | {} |", 100.0 * precision, columns.join(" | "));
    }
}

fn none(precision: f64, noise: Noise, trials: u64) -> String {
    let rule = Rule { precision, confidence: CONFIDENCE, least_rounds: 6, most_rounds: 30 };
    let cells: Vec<Comparison> = (0..trials).map(|seed| cell(&rule, noise, 1.0, seed)).collect();
    let none = cells.iter().filter(|cell| cell.verdict == Verdict::NoDifference).count();
    let rounds: usize = cells.iter().map(|cell| cell.rounds).sum();
    format!("{:.1} ({:.0})", 100.0 * none as f64 / trials as f64, rounds as f64 / trials as f64)
}
