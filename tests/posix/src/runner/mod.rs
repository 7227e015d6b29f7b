//! Runs every case in each mode, judges it by its exit and by the library's report, and prints results as they come.

mod by_ring;
mod by_stack;
mod job;
mod modes;
mod options;
pub mod report;
pub mod scratch;
mod stop;
pub mod world;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::case::Case;
use crate::cases;
use by_stack::Noted;
use job::{Job, Outcome, Place};
pub use modes::Mode;
use options::Options;
use scratch::Scratch;
use world::World;

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
    let scratch = Scratch::new(options.keep)?;
    stop::on_signals();
    let mut progress = Progress::new(jobs.len());
    let mut broken = vec![];
    for mode in &options.modes {
        let world = mode.stacks().map(|stacks| World::new(&scratch.path().join(mode.name()), stacks, mode.flips()));
        let world = world.transpose()?;
        let of_mode: Vec<&Job> = jobs.iter().filter(|job| job.mode == *mode).collect();
        run_all(&of_mode, options, Place { scratch: &scratch, world: world.as_ref() }, &mut progress);
        broken.extend(world.and_then(|world| world.end().err()).map(|what| format!("{}: {what}", mode.name())));
    }
    let outcomes = progress.outcomes;
    let whole = options
        .modes
        .iter()
        .filter_map(|&mode| Some(format!("{}: {}", mode.name(), by_stack::complaint(mode, &outcomes)?)));
    broken.extend(whole);
    if stop::asked() {
        eprintln!("posix-run: interrupted; every process it started has been ended");
        return Ok(130);
    }
    if options.note {
        by_ring::note(&outcomes)?;
        by_stack::note(&outcomes)?;
    }
    let failed = outcomes.iter().filter(|o| o.failure.is_some()).count();
    let passed = outcomes.len() - failed;
    let failed = failed + broken.len();
    if options.json {
        println!("{}", summary(&outcomes, passed, failed));
    }
    for what in broken {
        eprintln!("failed: {what}");
    }
    for outcome in outcomes.iter().filter(|o| o.failure.is_some()) {
        eprintln!("failed: {} ({})", outcome.case.name, outcome.mode.name());
    }
    let last = format!("posix: {passed} passed, {failed} failed");
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
    let preloaded = options.modes.iter().any(|mode| mode.is_preloaded());
    if preloaded && !options.sidestep.is_file() {
        return Err(format!(
            "{} is missing: build it (cargo build --release), name it with --sidestep PATH, or use --mode plain",
            options.sidestep.display()
        ));
    }
    let pairs = options.modes.iter().flat_map(|&mode| chosen.iter().map(move |&case| Job { case, mode }));
    let jobs: Vec<Job> = pairs.filter(runs).collect();
    if jobs.is_empty() { Err("none of these cases runs between two hosts: by_stack.txt".into()) } else { Ok(jobs) }
}

/// Whether the case makes sense in this mode. Between two hosts some do not, and by_stack.txt says why.
fn runs(job: &Job) -> bool {
    job.mode.stacks().is_none() || !matches!(by_stack::of(job.case.name), Noted::Out(_))
}

/// What has been run.
struct Progress {
    outcomes: Vec<Outcome>,
    all: usize,
}

impl Progress {
    fn new(all: usize) -> Progress {
        Progress { outcomes: vec![], all }
    }

    fn add(&mut self, outcome: Outcome) {
        show(self.outcomes.len() + 1, self.all, &outcome);
        self.outcomes.push(outcome);
    }
}

fn run_all(jobs: &[&Job], options: &Options, place: Place, progress: &mut Progress) {
    let next = AtomicUsize::new(0);
    let progress = Mutex::new(progress);
    std::thread::scope(|s| {
        for _ in 0..options.jobs {
            s.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let Some(mut outcome) = job.run(options, place) else { return };
                    if let Some(what) = outcome.failure.as_ref().filter(|_| options.again) {
                        eprintln!("unsteady: {} ({}): {what}", outcome.case.name, outcome.mode.name());
                        let Some(second) = job.run(options, place) else { return };
                        outcome = second;
                    }
                    progress.lock().expect("the outcomes").add(outcome);
                }
            });
        }
    });
}

fn show(done: usize, all: usize, outcome: &Outcome) {
    let (name, mode, seconds) = (outcome.case.name, outcome.mode.name(), outcome.seconds);
    let Some(failure) = &outcome.failure else {
        return eprintln!("[{done}/{all}] ok    {mode:12} {name} ({seconds:.2} s)");
    };
    eprintln!("[{done}/{all}] FAIL  {mode:12} {name} ({seconds:.2} s): {failure}");
    outcome.printed.lines().for_each(|line| eprintln!("    | {line}"));
    eprintln!("    again: {}", outcome.again);
}

fn summary(outcomes: &[Outcome], passed: usize, failed: usize) -> Value {
    let cases: Vec<Value> = outcomes.iter().map(Outcome::to_json).collect();
    json!({ "passed": passed, "failed": failed, "cases": cases })
}
