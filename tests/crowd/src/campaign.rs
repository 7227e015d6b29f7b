//! Many runs, one after another: those of given seeds, and of new ones.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sidestep_posix::runner::scratch::Scratch;

use crate::load::Load;
use crate::modes::Mode;
use crate::options::Options;
use crate::plan::Run;
use crate::run::{Passed, Runner};

/// The exit code.
pub fn run(options: &Options) -> Result<i32, String> {
    if options.plans {
        print_plans(options);
        return Ok(0);
    }
    let scratch = Scratch::new(false)?;
    let _load = Load::new(options.load);
    let runner = Runner { options, scratch: &scratch };
    let (began, first) = (Instant::now(), new_seed());
    let mut totals = Totals::default();
    let is_time = |seed: u64| seed < first + options.new || began.elapsed() < Duration::from_secs(options.time);
    for seed in options.seeds.iter().copied().chain((first..).take_while(|seed| is_time(*seed))) {
        for (number, mode) in options.modes.iter().enumerate() {
            for _ in 0..options.times {
                totals.add(number, one(&runner, &options.run_of(seed), *mode));
            }
        }
    }
    totals.code(&options.modes)
}

/// What all runs have shown.
#[derive(Default)]
struct Totals {
    passed: u64,
    failed: u64,
    /// Of each mode: bytes that went by ring, and those of connections that nothing takes to the kernel.
    rings: BTreeMap<usize, [u64; 2]>,
}

impl Totals {
    fn add(&mut self, mode: usize, result: Option<Passed>) {
        let Some(passed) = result else {
            self.failed += 1;
            return;
        };
        self.passed += 1;
        let sums = self.rings.entry(mode).or_default();
        *sums = [sums[0] + passed.report.ring, sums[1] + passed.by_ring];
    }

    /// The last lines, and the exit code.
    fn code(mut self, modes: &[Mode]) -> Result<i32, String> {
        if self.passed + self.failed == 0 {
            return Err("nothing ran".into());
        }
        for (number, [ring, bytes]) in &self.rings {
            if too_little(modes[*number], *ring, *bytes) {
                println!(
                    "FAIL  {}: {:.1} of {:.1} MB went by ring",
                    modes[*number].name,
                    megabytes(*ring),
                    megabytes(*bytes)
                );
                self.failed += 1;
            }
        }
        println!("crowd: {} passed, {} failed", self.passed, self.failed);
        Ok(i32::from(self.failed > 0))
    }
}

/// Bytes of which the share that went by ring says something.
const ENOUGH: u64 = 10_000_000;

fn too_little(mode: Mode, ring: u64, bytes: u64) -> bool {
    bytes > ENOUGH && ring * 100 < bytes * mode.least
}

/// Of the clock; of six digits, so that it can be typed.
fn new_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is after 1970");
    100_000 + now.as_secs() % 900_000
}

/// None: it failed.
fn one(runner: &Runner, run: &Run, mode: Mode) -> Option<Passed> {
    let began = Instant::now();
    let result = runner.run(run, mode);
    let what = format!("seed {}, {}: {} clients, {} connections", run.seed, mode.name, run.clients, run.all().len());
    match &result {
        Ok(Passed { bytes, by_ring, report }) => {
            let by_ring = format!(
                "{:.1} of {:.1} MB by ring, {} returns",
                megabytes(report.ring),
                megabytes(*by_ring),
                report.returned
            );
            let told = if mode.is_preloaded { by_ring } else { "by the kernel".into() };
            println!("ok    {what}, {:.1} MB, {told}, {:.1} s", megabytes(*bytes), began.elapsed().as_secs_f64());
        }
        Err(failure) => {
            println!("FAIL  {what}: {failure}");
            let again = runner.options.of_run(run).join(" ");
            println!(
                "      again: target/debug/crowd {again} --modes {} --times 20 --load {}",
                mode.name, runner.options.load
            );
        }
    }
    result.ok()
}

/// Each byte is sent and received.
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 2e6
}

fn print_plans(options: &Options) {
    for &seed in &options.seeds {
        let run = options.run_of(seed);
        println!("seed {seed}: server {:?}", run.crew(None));
        (0..run.clients).for_each(|client| println!("client {client}: {:?}", run.crew(Some(client))));
        for connection in run.all() {
            [true, false].iter().for_each(|is_client| println!("{:?}", run.plan(connection, *is_client)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modes;

    #[test]
    fn runs_that_stayed_on_the_kernel_fail_together() {
        let upgraded = modes::named("upgraded").expect("a mode")[0];
        assert!(too_little(upgraded, 1_000_000, 20_000_000));
        assert!(!too_little(upgraded, 10_000_000, 20_000_000));
        let [passed, ring] = [0, 10_000_000].map(|ring| Passed {
            bytes: 20_000_000,
            by_ring: 20_000_000,
            report: sidestep_posix::runner::report::Report { ring, ..Default::default() },
        });
        let mut totals = Totals::default();
        totals.add(0, Some(passed));
        assert_eq!(totals.code(&[upgraded]), Ok(1));
        let mut totals = Totals::default();
        totals.add(0, Some(ring));
        assert_eq!(totals.code(&[upgraded]), Ok(0));
    }
}
