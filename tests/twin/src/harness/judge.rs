//! One program in all ways: runs it, compares the traces, and reports the first fault.

use std::collections::BTreeSet;

use super::compare::{self, Comparison, Key, Kind};
use super::run::{Run, Runner};
use super::ways::{PLAIN, Way};
use crate::program::Step;
use crate::trace::Line;

/// The kernel's behaviour for a program, in both layouts.
pub struct Truth {
    lines: [Vec<Line>; 2],
    undetermined: [BTreeSet<Key>; 2],
}

pub struct Verdict {
    pub comparison: Comparison,
    /// The fault, in one line.
    pub fault: Option<String>,
    pub said: String,
    pub ring_bytes: u64,
    pub seconds: f64,
}

/// Number of runs on the kernel. Only lines on which they agree are compared. More runs follow before a difference counts.
pub const RUNS: usize = 2;
pub const RUNS_FOR_A_FAULT: usize = 4;

impl Truth {
    /// Err: the program does not even run on the kernel.
    pub fn find(runner: &Runner, steps: &[Step], seed: u64, layouts: &[bool], times: usize) -> Result<Truth, String> {
        let mut truth = Truth { lines: [vec![], vec![]], undetermined: [BTreeSet::new(), BTreeSet::new()] };
        for (i, way) in PLAIN.into_iter().enumerate().filter(|(_, way)| layouts.contains(&way.two)) {
            let mut runs = vec![];
            for _ in 0..times {
                let run = runner.run(steps, way, seed, None)?;
                if let Some(broke) = run.broke {
                    return Err(format!("on the kernel ({}): {broke}\n{}", way.name, run.said));
                }
                runs.push(run.lines);
            }
            let all: Vec<&[Line]> = runs.iter().map(Vec::as_slice).collect();
            truth.undetermined[i] = compare::undetermined(&all);
            truth.lines[i] = runs.remove(0);
        }
        Ok(truth)
    }

    pub fn of(&self, way: Way) -> &[Line] {
        &self.lines[usize::from(way.two)]
    }

    pub fn judge(&self, runner: &Runner, steps: &[Step], seed: u64, way: Way, strict: bool) -> Result<Verdict, String> {
        let started = std::time::Instant::now();
        let (plain, unsteady) = (self.of(way), &self.undetermined[usize::from(way.two)]);
        let run = runner.run(steps, way, seed, Some(plain))?;
        let comparison = compare::compare(steps, way, plain, &run, unsteady);
        let fault = fault(steps, way, &run, &comparison, strict);
        let (said, ring_bytes) = (run.said, run.report.ring);
        Ok(Verdict { comparison, fault, said, ring_bytes, seconds: started.elapsed().as_secs_f64() })
    }
}

fn fault(steps: &[Step], way: Way, run: &Run, comparison: &Comparison, strict: bool) -> Option<String> {
    let counts = |kind| kind == Kind::Fault || strict && matches!(kind, Kind::Order | Kind::Open(_));
    if let Some(d) = comparison.first(counts) {
        let (step, at, _) = d.key;
        let what = steps.get(step).map_or("the end".into(), ToString::to_string);
        return Some(format!("step {step}: {what}\n    kernel:   {}\n    [{at}] {}: {}", d.plain, way.name, d.other));
    }
    if let Some(broke) = &run.broke {
        return Some(broke.clone());
    }
    if run.warm.contains(&false) {
        return Some("a connection that was warmed up does not go by ring".into());
    }
    (!run.warm.is_empty() && run.report.ring == 0 && run.report.returned == 0).then(|| "no byte went by ring".into())
}
