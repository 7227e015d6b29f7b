//! One load on one set-up that stands.

use super::stop::Stop;
use crate::ground::{Ground, open_dir};
use crate::load::{Job, Latencies, Outcome, Tool};
use crate::meter::Meter;
use crate::result::Usage;
use crate::world::{LoadSpec, Output, Running, World};
use indexmap::IndexMap;
use std::time::{Duration, Instant};

/// Besides the load's own time: to start, and to get the last answers.
const SLACK: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(100);

pub struct Measured {
    pub outcome: Result<Outcome, String>,
    pub usage: Usage,
    /// See `result::Turn`.
    pub moved: IndexMap<String, u64>,
}

/// Warm-up, then measurement. `load` is the cell's, the set-up may be shared with others.
pub fn take(ground: &Ground, world: &mut World, load: &LoadSpec, stop: &Stop) -> Result<Measured, String> {
    if load.warmup > 0.0 {
        let job = Job { seconds: load.warmup, ..load.job.clone() };
        one(ground, world, load, job, stop)?.outcome?;
    }
    let before = world.moved(ground)?;
    let mut measured = one(ground, world, load, load.job.clone(), stop)?;
    let since = |(way, bytes): (String, u64)| (way.clone(), bytes - before[&way]);
    measured.moved = world.moved(ground)?.into_iter().map(since).collect();
    world.check()?;
    Ok(measured)
}

/// The error is that nothing could be measured at all.
fn one(ground: &Ground, world: &World, load: &LoadSpec, job: Job, stop: &Stop) -> Result<Measured, String> {
    let _ = std::fs::remove_dir_all(&job.folder);
    open_dir(&job.folder)?;
    let argv = ground.resolve(job.tool.argv(&job)?)?;
    let mut command = load.command.clone();
    command.argv.extend(argv);
    let start = || Running::start(&command, world.dir(), Output::Kept(None));
    let mut running = start()?;
    let meter = Meter::begin(&world.watched(ground, Some(running.pid())));
    let begun = Instant::now();
    let until = begun + Duration::from_secs_f64(job.seconds) + SLACK;
    if job.tool != Tool::Command {
        end(&running, until, stop)?;
        let usage = meter.end();
        return Ok(Measured { outcome: read(&mut running, &job), usage, moved: IndexMap::new() });
    }
    let mut latency = Latencies::new();
    let mut last = begun;
    loop {
        end(&running, until, stop)?;
        succeeded(&mut running)?;
        latency.record(last.elapsed().as_nanos() as u64, 1);
        if begun.elapsed().as_secs_f64() >= job.seconds {
            break;
        }
        last = Instant::now();
        running = start()?;
    }
    let usage = meter.end();
    let (requests, seconds) = (latency.count(), begun.elapsed().as_secs_f64());
    Ok(Measured {
        outcome: Ok(Outcome { requests, errors: 0, seconds, bytes: None, latency: Some(latency) }),
        usage,
        moved: IndexMap::new(),
    })
}

/// It is not reaped yet, so that what it used can still be read.
fn end(running: &Running, until: Instant, stop: &Stop) -> Result<(), String> {
    while !running.ended_within(LOOK) {
        if stop.asked() {
            return Err("interrupted".into());
        }
        if Instant::now() > until {
            return Err(running.error(&format!("has not ended {} s after its time", SLACK.as_secs())));
        }
    }
    Ok(())
}

fn read(running: &mut Running, job: &Job) -> Result<Outcome, String> {
    succeeded(running)?;
    Ok(job.tool.read(job, &running.output()?)?)
}

fn succeeded(running: &mut Running) -> Result<(), String> {
    let status = running.wait(Duration::ZERO).ok_or_else(|| running.error("still runs"))?;
    if status.success() { Ok(()) } else { Err(running.error(&format!("failed ({status})"))) }
}
