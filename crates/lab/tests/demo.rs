//! `make demo` ends within three minutes, prints few rows, each with a verdict, and a conclusion.

use crate::common;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, LogNormal};
use sidestep_lab::report::table;
use sidestep_lab::result::{About, Cell, Ended, Run, Trial, Variant};
use sidestep_lab::scenario::{Scenario, find, parse};
use sidestep_lab::stats::fewest;

const MOST_ROWS: usize = 12;
/// Seconds of a turn on a busy machine: twice its load and its warm-up.
const TRIAL: f64 = 2.6;
/// Seconds for a set-up's start there, mostly Envoy's.
const START: f64 = 5.0;

fn demo() -> Scenario {
    parse(find("demo").expect("the demo")).expect("a scenario")
}

/// A run with the fewest rounds, on a machine whose noise is far larger than the differences.
fn noisy() -> Run {
    let (scenario, like) = (demo(), common::small());
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let noise = LogNormal::new(0.0, 0.7).expect("a distribution");
    let variants: Vec<Variant> = scenario
        .variants
        .iter()
        .map(|(name, each)| Variant {
            name: name.clone(),
            about: each.about.clone(),
            baseline: *name == scenario.baseline,
            control: false,
        })
        .collect();
    let mut trials = || {
        let pairs = (0..fewest(scenario.design.confidence) as u32)
            .flat_map(|round| variants.iter().map(move |each| (round, each)));
        pairs
            .map(|(round, variant)| {
                let mut trial = Trial { round, variant: variant.name.clone(), ..like.cells[0].trials[0].clone() };
                let outcome = trial.outcome.as_mut().expect("a trial that counts");
                outcome.requests = (outcome.requests as f64 * noise.sample(&mut rng)) as u64;
                trial
            })
            .collect()
    };
    let cells = scenario
        .cells()
        .into_iter()
        .map(|values| Cell { values, variants: Vec::new(), trials: trials(), profiles: Vec::new() })
        .collect();
    let about = About {
        name: scenario.name.clone(),
        about: scenario.about.clone(),
        judged: scenario.design.judge.clone(),
        precision: scenario.design.precision,
        ..like.scenario.clone()
    };
    Run { scenario: about, variants, cells, ended: Ended::TimeLimit, ..common::small() }
}

#[test]
fn each_row_has_a_verdict_and_one_sentence_ends_it() {
    let text = table(&noisy());
    let rows: Vec<&str> = text.lines().filter(|line| line.contains("  rings  ")).collect();
    let verdict = |row: &&str| ["better", "worse", "no difference"].iter().any(|verdict| row.ends_with(verdict));
    assert!(!rows.is_empty() && rows.len() <= MOST_ROWS && rows.iter().all(verdict), "{text}");
    let last = text.lines().last().expect("a line");
    assert!(last.starts_with("In short, with rings instead of plain: ") && last.ends_with('.'), "{text}");
    assert_eq!(text.matches("In short").count(), 1, "{text}");
}

/// A verdict takes only six rounds. On a slower machine cells are left out: `run/budget.rs`.
#[test]
fn enough_rounds_fit_into_the_time_on_a_busy_machine() {
    let (scenario, rounds) = (demo(), fewest(demo().design.confidence) as f64);
    let design = &scenario.design;
    let contestants = (scenario.variants.len() + usize::from(design.control)) as f64;
    let sidestep_lab::scenario::Restart::Rounds(stands) = design.restart else {
        panic!("set-ups stand for some rounds")
    };
    let trials = rounds * scenario.cells().len() as f64 * contestants * TRIAL;
    let starts = (rounds / f64::from(stands)).ceil() * contestants * START;
    assert!(trials + starts <= design.limit.as_secs_f64(), "{trials} s of trials, {starts} s of starts");
    assert!(design.limit.as_secs_f64() <= 165.0, "and the rest of `make demo` needs some time, too");
}
