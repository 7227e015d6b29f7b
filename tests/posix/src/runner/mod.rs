//! Runs every case in each mode, judges it by its exit and by the library's report, and prints results as they come.

mod by_ring;
mod job;
mod options;
pub mod report;
mod scratch;
mod stop;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::case::Case;
use crate::cases;
use job::{Job, Outcome};
use options::Options;
use scratch::Scratch;

/// How a case runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// On kernel TCP, which defines the right behaviour.
    Plain,
    /// Preloaded, upgraded at the first byte.
    Upgraded,
    /// Preloaded; each direction keeps changing between ring and kernel.
    Flip,
}

impl Mode {
    /// As option `--mode` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Plain => "plain",
            Mode::Upgraded => "upgraded",
            Mode::Flip => "flip",
        }
    }
}

/// The program: exit code 0 when all passed, 1 when some failed, 2 when nothing could run.
pub fn main() -> i32 {
    match Options::from_args(std::env::args().skip(1)) {
        Ok(options) if options.help => {
            print!("{}", options::HELP);
            0
        }
        Ok(options) => run(&options).unwrap_or_else(complain),
        Err(what) => complain(format!("{what}\nposix-run --help explains the options")),
    }
}

fn complain(what: String) -> i32 {
    eprintln!("posix-run: {what}");
    2
}

fn run(options: &Options) -> Result<i32, String> {
    let jobs = jobs(options)?;
    let scratch = Scratch::new()?;
    stop::on_signals();
    let outcomes = run_all(&jobs, options, &scratch);
    if stop::asked() {
        eprintln!("posix-run: interrupted; every process it started has been ended");
        return Ok(130);
    }
    if options.note {
        by_ring::note(&outcomes)?;
    }
    let failed = outcomes.iter().filter(|o| o.failure.is_some()).count();
    if options.json {
        println!("{}", summary(&outcomes, failed));
    }
    for outcome in outcomes.iter().filter(|o| o.failure.is_some()) {
        eprintln!("failed: {} ({})", outcome.case.name, outcome.mode.name());
    }
    let last = format!("posix: {} passed, {failed} failed", outcomes.len() - failed);
    if options.json {
        eprintln!("{last}")
    } else {
        println!("{last}")
    }
    Ok(i32::from(failed > 0))
}

/// All jobs, or why they cannot run.
fn jobs(options: &Options) -> Result<Vec<Job>, String> {
    let chosen: Vec<&'static Case> =
        cases::all().filter(|c| options.filters.iter().all(|f| c.name.contains(f.as_str()))).collect();
    if chosen.is_empty() {
        return Err(format!("no case's name contains {:?}", options.filters));
    }
    let preloaded = options.modes.iter().any(|&m| m != Mode::Plain);
    if preloaded && !options.sidestep.is_file() {
        return Err(format!(
            "{} is missing: build it (cargo build --release), name it with --sidestep PATH, or use --mode plain",
            options.sidestep.display()
        ));
    }
    let pairs = options.modes.iter().flat_map(|&mode| chosen.iter().map(move |&case| Job { case, mode }));
    Ok(pairs.collect())
}

fn run_all(jobs: &[Job], options: &Options, scratch: &Scratch) -> Vec<Outcome> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::new());
    std::thread::scope(|s| {
        for _ in 0..options.jobs {
            s.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let Some(mut outcome) = job.run(options, scratch) else { return };
                    if let Some(what) = outcome.failure.as_ref().filter(|_| options.again) {
                        eprintln!("unsteady: {} ({}): {what}", outcome.case.name, outcome.mode.name());
                        let Some(second) = job.run(options, scratch) else { return };
                        outcome = second;
                    }
                    let mut outcomes = outcomes.lock().expect("the list of outcomes");
                    outcomes.push(outcome);
                    show(outcomes.len(), jobs.len(), outcomes.last().expect("one outcome"));
                }
            });
        }
    });
    outcomes.into_inner().expect("the list of outcomes")
}

fn show(done: usize, all: usize, outcome: &Outcome) {
    let (name, mode, seconds) = (outcome.case.name, outcome.mode.name(), outcome.seconds);
    let Some(failure) = &outcome.failure else {
        return eprintln!("[{done}/{all}] ok    {mode:8} {name} ({seconds:.2} s)");
    };
    eprintln!("[{done}/{all}] FAIL  {mode:8} {name} ({seconds:.2} s): {failure}");
    outcome.printed.lines().for_each(|line| eprintln!("    | {line}"));
    eprintln!("    again: {}", outcome.again);
}

fn summary(outcomes: &[Outcome], failed: usize) -> Value {
    let cases: Vec<Value> = outcomes.iter().map(Outcome::to_json).collect();
    json!({ "passed": outcomes.len() - failed, "failed": failed, "cases": cases })
}
