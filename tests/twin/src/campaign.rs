//! Runs many programs: stored ones, those of given seeds, and those of new seeds while there is time.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::generate;
use crate::harness::compare::Kind;
use crate::harness::modes::{self, Choice, Mode};
use crate::harness::open::OPEN;
use crate::harness::options::Options;
use crate::harness::rules;
use crate::harness::run::Runner;
use crate::harness::shrink::Shrink;
use crate::harness::truth::{RUNS, RUNS_FOR_A_FAULT, Truth, Verdict};
use crate::harness::worlds::Worlds;
use crate::program::{self, Step};
use crate::trace::Line;

/// A program, and how to get it again.
struct Subject {
    name: String,
    seed: u64,
    steps: Vec<Step>,
}

struct Campaign<'a> {
    options: &'a Options,
    runner: Runner,
    modes: Choice,
    outcomes: Mutex<Vec<Value>>,
    failed: AtomicU64,
    passed: AtomicU64,
    /// How often each rule of LIMITATIONS applied.
    rules: Mutex<BTreeMap<&'static str, u64>>,
}

pub fn run(options: &Options) -> Result<i32, String> {
    if let Some(seed) = options.show {
        print!("{}", readable(&generate::program(seed, options.steps)));
        return Ok(0);
    }
    let sidestep = options.sidestep.clone().unwrap_or_else(|| sidestep_posix::shipped::program("sidestep"));
    if !sidestep.is_file() {
        return Err(format!("{} is missing: cargo build --release", sidestep.display()));
    }
    let scratch = tempfile::Builder::new().prefix("twin-").tempdir().map_err(|e| e.to_string())?;
    let deadline = Duration::from_secs(options.deadline);
    let runner = Runner { sidestep, scratch: scratch.path().into(), deadline, worlds: Worlds::new(scratch.path()) };
    let campaign = Campaign {
        options,
        runner,
        modes: modes::named(&options.modes)?,
        outcomes: Mutex::new(vec![]),
        failed: AtomicU64::new(0),
        passed: AtomicU64::new(0),
        rules: Mutex::new(BTreeMap::new()),
    };
    campaign.all()?;
    campaign.say_rules();
    if let Err(what) = campaign.runner.worlds.end() {
        campaign.failed.fetch_add(1, Relaxed);
        eprintln!("FAIL {what}");
    }
    let (passed, failed) = (campaign.passed.load(Relaxed), campaign.failed.load(Relaxed));
    let last = format!("twin: {passed} passed, {failed} failed");
    if options.json {
        let programs = campaign.outcomes.into_inner().expect("the outcomes");
        println!("{}", json!({ "passed": passed, "failed": failed, "programs": programs }));
        eprintln!("{last}");
    } else {
        println!("{last}");
    }
    Ok(if passed + failed == 0 { 2 } else { i32::from(failed > 0) })
}

/// The part of a fault's text that distinguishes faults.
fn first_line(fault: &str) -> &str {
    fault.lines().next().unwrap_or_default()
}

fn readable(steps: &[Step]) -> String {
    steps.iter().enumerate().map(|(i, step)| format!("{i:4} {step}\n")).collect()
}

fn load(path: &Path) -> Result<Subject, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let steps = program::parse(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    let seed = text.lines().find_map(|line| line.strip_prefix("# seed ")?.trim().parse().ok()).unwrap_or(1);
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Subject { name, seed, steps })
}

/// The stored programs, which once showed a fault.
fn stored(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|ext| ext == "twin"));
    paths.sort();
    Ok(paths)
}

impl Campaign<'_> {
    fn all(&self) -> Result<(), String> {
        if let Some(path) = &self.options.replay {
            self.one(&load(path)?, true);
            return Ok(());
        }
        let mut subjects = vec![];
        if let Some(dir) = &self.options.programs {
            subjects.extend(stored(dir)?.iter().map(|path| load(path)).collect::<Result<Vec<_>, _>>()?);
        }
        let first_new = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()) % 1_000_000 * 1000;
        let seeds = self.options.seed_range()?.chain(first_new..first_new + self.options.new);
        subjects.extend(seeds.map(|seed| self.subject(seed)));
        let next = AtomicU64::new(0);
        let until = self.options.time.map(|s| Instant::now() + Duration::from_secs(s));
        std::thread::scope(|scope| {
            for _ in 0..self.options.jobs.max(1) {
                scope.spawn(|| {
                    loop {
                        let i = next.fetch_add(1, Relaxed) as usize;
                        match subjects.get(i) {
                            Some(subject) => self.one(subject, false),
                            None if until.is_some_and(|until| Instant::now() < until) => {
                                self.one(&self.subject(first_new + 500 + i as u64), false);
                            }
                            None => return,
                        }
                    }
                });
            }
        });
        Ok(())
    }

    fn subject(&self, seed: u64) -> Subject {
        let steps = generate::program(seed, self.options.steps);
        Subject { name: format!("seed-{seed}"), seed, steps }
    }

    fn one(&self, subject: &Subject, trace: bool) {
        let modes = self.modes.of(subject.seed);
        let truth = match Truth::find(&self.runner, &subject.steps, subject.seed, &modes, RUNS) {
            Ok(truth) => truth,
            Err(what) => return self.fails(subject, "plain", &what),
        };
        if trace {
            self.show_trace(subject, truth.of(modes[0]));
        }
        let mut shown = HashSet::new();
        for mode in modes {
            match truth.evaluate(&self.runner, &subject.steps, subject.seed, mode, self.options.strict) {
                Err(what) => self.fails(subject, mode.name, &what),
                Ok(verdict) => self.conclude(subject, mode, verdict, &mut shown),
            }
        }
    }

    fn show_trace(&self, subject: &Subject, lines: &[Line]) {
        for (i, step) in subject.steps.iter().enumerate() {
            println!("{i:4} {step}");
            for line in lines.iter().filter(|line| line.after.unwrap_or(line.step) == i) {
                let late = if line.after.is_some() { format!("step {} ", line.step) } else { String::new() };
                println!("         {late}= {line}");
            }
        }
    }

    fn say_rules(&self) {
        let used = self.rules.lock().expect("the rules");
        for rule in rules::RULES {
            let times = used.get(rule.name).unwrap_or(&0);
            eprintln!("{times} differences are allowed by LIMITATIONS ({}): {}", rule.name, rule.sentence);
        }
        for open in OPEN {
            let times = used.get(open.name).unwrap_or(&0);
            eprintln!("{times} times an open fault ({}): {}", open.name, open.what);
        }
    }

    fn conclude(&self, subject: &Subject, mode: Mode, verdict: Verdict, shown: &mut HashSet<String>) {
        let kinds = |is: fn(Kind) -> bool| verdict.comparison.differences.iter().filter(|d| is(d.kind)).count();
        for difference in &verdict.comparison.differences {
            if let Kind::Known(name) | Kind::Open(name) = difference.kind {
                *self.rules.lock().expect("the rules").entry(name).or_default() += 1;
            }
        }
        let (order, known) = (kinds(|k| k == Kind::Order), kinds(|k| matches!(k, Kind::Known(_))));
        let open = kinds(|k| matches!(k, Kind::Open(_)));
        self.outcomes.lock().expect("the outcomes").push(json!({
            "program": subject.name, "steps": subject.steps.len(), "mode": mode.name, "fault": verdict.fault,
            "compared": verdict.comparison.compared, "undetermined": verdict.comparison.undetermined,
            "order": order, "known": known, "open": open, "ring_bytes": verdict.ring_bytes, "seconds": verdict.seconds,
        }));
        match &verdict.fault {
            None => {
                self.passed.fetch_add(1, Relaxed);
                eprintln!(
                    "ok   {} {}: {} lines compared, {} undetermined, {order} in another order, {known} known, {open} open, {} bytes by ring ({:.1} s)",
                    subject.name,
                    mode.name,
                    verdict.comparison.compared,
                    verdict.comparison.undetermined,
                    verdict.ring_bytes,
                    verdict.seconds
                );
            }
            Some(fault) if shown.contains(first_line(fault)) => {
                self.fails(subject, mode.name, &format!("{fault}\n    as before"));
            }
            Some(fault) if self.smaller(subject, mode, fault, &verdict) => {
                shown.insert(first_line(fault).to_owned());
            }
            Some(_) => {}
        }
    }

    /// Makes the program of a fault smaller. Returns whether the fault counts: it must show twice. A fault that a busy machine
    /// shows once is only printed.
    fn smaller(&self, subject: &Subject, mode: Mode, fault: &str, verdict: &Verdict) -> bool {
        let time = Duration::from_secs(self.options.shrink);
        let shrink = Shrink { runner: &self.runner, mode, seed: subject.seed, strict: self.options.strict, time };
        let Some(again) = shrink.fault_of(&subject.steps, RUNS_FOR_A_FAULT) else {
            self.passed.fetch_add(1, Relaxed);
            eprintln!("unsteady: {} {}: {fault}", subject.name, mode.name);
            return false;
        };
        let steps = if time.is_zero() { subject.steps.clone() } else { shrink.shrink(&subject.steps, &again) };
        let path = self.options.out.join(format!("{}-{}.twin", subject.name, mode.name));
        let last = shrink.fault_of(&steps, RUNS);
        let what = last.as_ref().and_then(|v| v.fault.as_deref()).unwrap_or(fault);
        let head: String = what.lines().map(|line| format!("# {line}\n")).collect();
        let text =
            format!("# {} {}\n# seed {}\n{head}{}", subject.name, mode.name, subject.seed, program::format(&steps));
        let written = std::fs::create_dir_all(&self.options.out).and_then(|()| std::fs::write(&path, text));
        let place = written.map_or_else(|e| e.to_string(), |()| path.display().to_string());
        let said = &verdict.said;
        self.fails(subject, mode.name, &format!("{what}\n{}    {place}\n{said}", readable(&steps)));
        true
    }

    fn fails(&self, subject: &Subject, mode: &str, what: &str) {
        self.failed.fetch_add(1, Relaxed);
        eprintln!("FAIL {} {mode}: {what}", subject.name);
    }
}
