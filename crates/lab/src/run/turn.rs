//! One load on one set-up that stands.

use super::stop::Stop;
use crate::ground::{Ground, open_dir};
use crate::load::{Execution, Job, Outcome, Tool};
use crate::meter::Meter;
use crate::profile::Sampler;
use crate::result::{ProcessProfile, Usage};
use crate::world::{LoadSpec, Output, Running, World};
use indexmap::IndexMap;
use std::time::{Duration, Instant};

const LOOK: Duration = Duration::from_millis(100);

pub struct Measured {
    pub outcome: Result<Outcome, String>,
    pub usage: Usage,
    /// See `result::Turn`.
    pub moved: IndexMap<String, u64>,
}

/// Warm-up, then measurement. `load` is the cell's, the set-up may be shared with others.
pub fn take(ground: &Ground, world: &mut World, load: &LoadSpec, stop: &Stop) -> Result<Measured, String> {
    let turn = Take { ground, world, load, stop };
    turn.warm_up()?;
    let before = world.moved(ground)?;
    let (outcome, usage) = turn.measure()?;
    let since = |(way, bytes): (String, u64)| (way.clone(), bytes - before[&way]);
    let moved = world.moved(ground)?.into_iter().map(since).collect();
    if outcome.is_ok() {
        world.check(load, &moved)?;
    }
    Ok(Measured { outcome, usage, moved })
}

/// A profile takes at least so many seconds: in one there are a thousand samples of a processor.
const PROFILE_SECONDS: f64 = 5.0;

/// One more load, of which only samples count.
pub fn profile(
    ground: &Ground,
    world: &World,
    load: &LoadSpec,
    stop: &Stop,
) -> Result<IndexMap<String, ProcessProfile>, String> {
    let mut load = load.clone();
    load.job.seconds = load.job.seconds.max(PROFILE_SECONDS);
    let turn = Take { ground, world, load: &load, stop };
    turn.warm_up()?;
    let sampler = Sampler::begin(world.watched(ground, None).processes)?;
    let (outcome, _) = turn.measure()?;
    outcome?;
    sampler.end()
}

struct Take<'a> {
    ground: &'a Ground,
    world: &'a World,
    load: &'a LoadSpec,
    stop: &'a Stop,
}

/// The error of these is that nothing could be measured at all; that of the outcome is the tool's own.
type Taken = Result<(Result<Outcome, String>, Usage), String>;

impl Take<'_> {
    /// Whatever the tool would say of it nobody hears.
    fn warm_up(&self) -> Result<(), String> {
        if self.load.warmup == 0.0 {
            return Ok(());
        }
        // Some tools know whole seconds only.
        let job = Job { seconds: self.load.warmup.ceil() + 1.0, ..self.load.job.clone() };
        let mut running = self.start(&job)?;
        if running.ended_within(Duration::from_secs_f64(self.load.warmup)) {
            succeeded(&mut running)?;
        }
        running.stop();
        Ok(())
    }

    fn measure(&self) -> Taken {
        match self.load.job.tool {
            Tool::Command => self.repeat(),
            _ => self.once(),
        }
    }

    fn once(&self) -> Taken {
        let job = &self.load.job;
        let until = self.until();
        let mut running = self.start(job)?;
        let mut meter = self.meter(Some(&running));
        self.end(&running, until, &mut meter)?;
        // Before anybody waits for it: then what it used would be gone.
        let usage = meter.end();
        let outcome = succeeded(&mut running).and_then(|()| running.output());
        Ok((outcome.and_then(|said| job.tool.read(job, &said).map_err(|why| why.to_string())), usage))
    }

    /// A command line, again and again until the time is over.
    fn repeat(&self) -> Taken {
        let job = &self.load.job;
        let mut all = Vec::new();
        // Without cgroups the CPU of many short processes cannot be told. With them the meter need not know of any, and what it
        // takes to begin is no part of the first one's time.
        let mut meter = self.meter(None);
        let (begun, until) = (Instant::now(), self.until());
        let mut running = self.start(job)?;
        let mut last = begun;
        loop {
            self.end(&running, until, &mut meter)?;
            all.push(Execution { took: last.elapsed(), succeeded: succeeded(&mut running).is_ok() });
            if begun.elapsed().as_secs_f64() >= job.seconds {
                break;
            }
            last = Instant::now();
            running = self.start(job)?;
        }
        let (usage, seconds) = (meter.end(), begun.elapsed().as_secs_f64());
        if all.iter().all(|each| !each.succeeded) {
            return Err(running.error("has failed each time"));
        }
        Ok((Outcome::of_executions(&all, seconds).map_err(|why| why.to_string()), usage))
    }

    fn start(&self, job: &Job) -> Result<Running, String> {
        // Of the last one nothing is left.
        let _ = std::fs::remove_dir_all(&job.folder);
        open_dir(&job.folder)?;
        let argv = job.tool.argv(job).map_err(|why| why.to_string())?;
        let mut command = self.load.command.clone();
        command.argv.extend(self.ground.resolve(argv)?);
        Running::start(&command, Output::Kept(None))
    }

    fn meter(&self, load: Option<&Running>) -> Meter {
        Meter::begin(&self.world.watched(self.ground, load.map(Running::pid)))
    }

    fn until(&self) -> Instant {
        Instant::now() + Duration::from_secs_f64(self.load.job.seconds + self.load.patience)
    }

    /// It is not reaped yet, so that what it used can still be read.
    fn end(&self, running: &Running, until: Instant, meter: &mut Meter) -> Result<(), String> {
        let (begun, half) = (Instant::now(), Duration::from_secs_f64(self.load.job.seconds / 2.0));
        while !running.ended_within(LOOK) {
            if begun.elapsed() > half {
                meter.look_at_memory();
            }
            if self.stop.asked() {
                return Err("interrupted".into());
            }
            if Instant::now() > until {
                let (patience, seconds) = (self.load.patience, self.load.job.seconds);
                return Err(running.error(&format!("has not ended {patience} s after its {seconds} s (load.patience)")));
            }
        }
        Ok(())
    }
}

fn succeeded(running: &mut Running) -> Result<(), String> {
    let status = running.wait(Duration::ZERO).ok_or_else(|| running.error("still runs"))?;
    if status.success() { Ok(()) } else { Err(running.error(&format!("failed ({status})"))) }
}
