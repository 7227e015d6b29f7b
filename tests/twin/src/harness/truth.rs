//! One program in all modes: runs it, compares the traces, and reports the first fault.

use std::collections::BTreeSet;

use super::compare::{self, Comparison, Key, Kind};
use super::modes::Mode;
use super::run::{Run, Runner};
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
    pub fn find(runner: &Runner, steps: &[Step], seed: u64, modes: &[Mode], times: usize) -> Result<Truth, String> {
        let mut truth = Truth { lines: [vec![], vec![]], undetermined: [BTreeSet::new(), BTreeSet::new()] };
        for i in 0..2 {
            let Some(mode) = modes.iter().find(|mode| usize::from(mode.two) == i).map(|mode| mode.plain()) else {
                continue;
            };
            let mut runs = vec![];
            for _ in 0..times {
                let run = runner.run(steps, mode, seed, None)?;
                if let Some(broke) = run.broke {
                    return Err(format!("on the kernel ({}): {broke}\n{}", mode.name, run.said));
                }
                runs.push(run.lines);
            }
            let all: Vec<&[Line]> = runs.iter().map(Vec::as_slice).collect();
            truth.undetermined[i] = compare::undetermined(&all);
            truth.lines[i] = runs.remove(0);
        }
        Ok(truth)
    }

    pub fn of(&self, mode: Mode) -> &[Line] {
        &self.lines[usize::from(mode.two)]
    }

    pub fn evaluate(
        &self,
        runner: &Runner,
        steps: &[Step],
        seed: u64,
        mode: Mode,
        strict: bool,
    ) -> Result<Verdict, String> {
        let started = std::time::Instant::now();
        let (plain, unsteady) = (self.of(mode), &self.undetermined[usize::from(mode.two)]);
        let run = runner.run(steps, mode, seed, Some(plain))?;
        let comparison = compare::compare(steps, mode, plain, &run, unsteady);
        let fault = fault(steps, mode, &run, &comparison, strict);
        let (said, ring_bytes) = (run.said, run.report.ring);
        Ok(Verdict { comparison, fault, said, ring_bytes, seconds: started.elapsed().as_secs_f64() })
    }
}

fn fault(steps: &[Step], mode: Mode, run: &Run, comparison: &Comparison, strict: bool) -> Option<String> {
    let counts = |kind| kind == Kind::Fault || strict && matches!(kind, Kind::Order | Kind::Open(_));
    if let Some(d) = comparison.first(counts) {
        let (step, at, _) = d.key;
        let what = steps.get(step).map_or("the end".into(), ToString::to_string);
        return Some(format!("step {step}: {what}\n    kernel:   {}\n    [{at}] {}: {}", d.plain, mode.name, d.other));
    }
    if let Some(broke) = &run.broke {
        return Some(broke.clone());
    }
    if run.warm.contains(&false) {
        return Some("a connection that was warmed up does not go by ring".into());
    }
    (!run.warm.is_empty() && run.report.ring == 0 && run.report.returned == 0).then(|| "no byte went by ring".into())
}
