//! Makes a program that shows a fault smaller: leaves steps out while the fault remains.

use std::time::{Duration, Instant};

use super::modes::Mode;
use super::run::Runner;
use super::truth::{RUNS, Truth, Verdict};
use crate::program::Step;

pub struct Shrink<'a> {
    pub runner: &'a Runner,
    pub mode: Mode,
    pub seed: u64,
    pub strict: bool,
    pub time: Duration,
}

impl Shrink<'_> {
    /// The verdict on these steps, if they show a fault. `times`: number of runs on the kernel.
    pub fn fault_of(&self, steps: &[Step], times: usize) -> Option<Verdict> {
        let truth = Truth::find(self.runner, steps, self.seed, &[self.mode], times).ok()?;
        let verdict = truth.evaluate(self.runner, steps, self.seed, self.mode, self.strict).ok()?;
        verdict.fault.is_some().then_some(verdict)
    }

    pub fn shrink(&self, steps: &[Step], verdict: &Verdict) -> Vec<Step> {
        let started = Instant::now();
        let mut steps = self.cut_after(steps, verdict);
        let mut size = steps.len().div_ceil(2);
        while size > 0 && started.elapsed() < self.time {
            let mut at = 0;
            while at < steps.len() && started.elapsed() < self.time {
                let to = (at + size).min(steps.len());
                let fewer = [&steps[..at], &steps[to..]].concat();
                match self.fault_of(&fewer, RUNS) {
                    Some(_) => steps = fewer,
                    None => at = to,
                }
            }
            size = if size == 1 { 0 } else { size.div_ceil(2) };
        }
        steps
    }

    /// Removes the steps after the first difference.
    fn cut_after(&self, steps: &[Step], verdict: &Verdict) -> Vec<Step> {
        let last = verdict.comparison.differences.first().map_or(steps.len(), |d| d.key.0 + 1);
        let short = steps[..last.min(steps.len())].to_vec();
        if self.fault_of(&short, RUNS).is_some() { short } else { steps.to_vec() }
    }
}
