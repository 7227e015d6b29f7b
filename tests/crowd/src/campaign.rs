//! Many runs, one after another: those of given seeds, and of new ones.

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
    let mut totals = [0, 0];
    let is_time = |seed: u64| seed < first + options.new || began.elapsed() < Duration::from_secs(options.time);
    for seed in options.seeds.clone().chain((first..).take_while(|seed| is_time(*seed))) {
        for mode in &options.modes {
            for _ in 0..options.times {
                totals[usize::from(!passes(&runner, &options.run_of(seed), *mode))] += 1;
            }
        }
    }
    let [passed, failed] = totals;
    println!("crowd: {passed} passed, {failed} failed");
    match (passed, failed) {
        (0, 0) => Err("nothing ran".into()),
        _ => Ok(i32::from(failed > 0)),
    }
}

/// Of the clock; of six digits, so that it can be typed.
fn new_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is after 1970");
    100_000 + now.as_secs() % 900_000
}

fn passes(runner: &Runner, run: &Run, mode: Mode) -> bool {
    let began = Instant::now();
    let result = runner.run(run, mode);
    let what = format!("seed {}, {}: {} clients, {} connections", run.seed, mode.name, run.clients, run.all().len());
    match &result {
        Ok(Passed { bytes, report }) => {
            let by_ring = format!("{} % by ring, {} returns", 100 * report.ring / bytes.max(&1), report.returned);
            let told = if mode.is_preloaded { by_ring } else { "by the kernel".into() };
            println!("ok    {what}, {:.1} MB, {told}, {:.1} s", *bytes as f64 / 2e6, began.elapsed().as_secs_f64());
        }
        Err(failure) => {
            println!("FAIL  {what}: {failure}");
            let again = runner.options.of_run(run).join(" ");
            println!("      again: target/debug/crowd {again} --modes {} --times 20 --load {}", mode.name, runner.options.load);
        }
    }
    result.is_ok()
}

fn print_plans(options: &Options) {
    for seed in options.seeds.clone() {
        let run = options.run_of(seed);
        println!("seed {seed}: server {:?}", run.crew(None));
        (0..run.clients).for_each(|client| println!("client {client}: {:?}", run.crew(Some(client))));
        for connection in run.all() {
            [true, false].iter().for_each(|is_client| println!("{:?}", run.plan(connection, *is_client)));
        }
    }
}
