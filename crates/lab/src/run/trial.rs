//! One load on one existing set-up.

use super::error::TrialError;
use super::stop::Stop;
use crate::context::{RunContext, open_dir};
use crate::environment::{Environment, Fate, LoadSpec, Output, ProcessError, Running};
use crate::load::{Execution, Job, Outcome, Tool};
use crate::meter::Meter;
use crate::profile::Sampler;
use crate::result::{ProcessProfile, Usage};
use indexmap::IndexMap;
use std::time::{Duration, Instant};

const LOOK: Duration = Duration::from_millis(100);

pub struct Measured {
    pub outcome: Result<Outcome, TrialError>,
    pub usage: Usage,
    /// As in `result::Trial`.
    pub moved: IndexMap<String, u64>,
    /// As in `result::Trial`.
    pub noted: Vec<String>,
}

/// Warms up, then measures. `load` is the cell's; cells may share the set-up.
pub fn run(
    context: &RunContext,
    environment: &mut Environment,
    load: &LoadSpec,
    stop: &Stop,
) -> Result<Measured, TrialError> {
    let trial = Take { context, environment, load, stop };
    trial.warm_up()?;
    let before = environment.moved(context)?;
    let (outcome, usage) = trial.measure()?;
    let since = |(way, bytes): (String, u64)| (way.clone(), bytes - before[&way]);
    let moved = environment.moved(context)?.into_iter().map(since).collect();
    let noted = if outcome.is_ok() { environment.check(load, &moved)? } else { Vec::new() };
    Ok(Measured { outcome, usage, moved, noted })
}

/// Least duration of a profile: each processor has about a thousand samples a second.
const PROFILE_SECONDS: f64 = 5.0;

/// One more load, of which only the samples count.
pub fn profile(
    context: &RunContext,
    environment: &Environment,
    load: &LoadSpec,
    stop: &Stop,
) -> Result<IndexMap<String, ProcessProfile>, TrialError> {
    let mut load = load.clone();
    load.job.seconds = load.job.seconds.max(PROFILE_SECONDS);
    let trial = Take { context, environment, load: &load, stop };
    trial.warm_up()?;
    let sampler = Sampler::begin(environment.watched(context, None).processes)?;
    let (outcome, _) = trial.measure()?;
    outcome?;
    Ok(sampler.end()?)
}

struct Take<'a> {
    context: &'a RunContext,
    environment: &'a Environment,
    load: &'a LoadSpec,
    stop: &'a Stop,
}

/// The outer error: nothing could be measured. The inner one: the tool failed.
type Taken = Result<(Result<Outcome, TrialError>, Usage), TrialError>;

impl Take<'_> {
    /// The tool's output is ignored.
    fn warm_up(&self) -> Result<(), TrialError> {
        if self.load.warmup == 0.0 {
            return Ok(());
        }
        // Some tools take whole seconds only.
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
        // Before the process is waited for, since its CPU time would then be gone.
        let usage = meter.end();
        let said = succeeded(&mut running).and_then(|()| running.output());
        let outcome = said.map_err(TrialError::from).and_then(|said| Ok(job.tool.read(job, &said)?));
        Ok((outcome, usage))
    }

    /// Repeats a command line until the time is over.
    fn repeat(&self) -> Taken {
        let job = &self.load.job;
        let mut all = Vec::new();
        // Without cgroups the CPU time of many short processes is unknown. With cgroups the meter needs no pid, so it starts before
        // the first process, whose time then does not include the meter's start.
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
        // Before the meter ends, which takes a while on a busy machine.
        let seconds = begun.elapsed().as_secs_f64();
        let usage = meter.end();
        if all.iter().all(|each| !each.succeeded) {
            return Err(running.error(Fate::FailedEachTime).into());
        }
        Ok((Outcome::of_executions(&all, seconds).map_err(TrialError::from), usage))
    }

    fn start(&self, job: &Job) -> Result<Running, TrialError> {
        // Removes files of the last run.
        let _ = std::fs::remove_dir_all(&job.folder);
        open_dir(&job.folder)?;
        let argv = job.tool.argv(job)?;
        let mut command = self.load.command.clone();
        command.argv.extend(self.context.resolve(argv)?);
        Ok(Running::start(&command, Output::Kept(None))?)
    }

    fn meter(&self, load: Option<&Running>) -> Meter {
        Meter::begin(&self.environment.watched(self.context, load.map(Running::pid)))
    }

    fn until(&self) -> Instant {
        Instant::now() + Duration::from_secs_f64(self.load.job.seconds + self.load.patience)
    }

    /// Waits for the end without reaping the process, so that its CPU time can still be read.
    fn end(&self, running: &Running, until: Instant, meter: &mut Meter) -> Result<(), TrialError> {
        let (begun, half) = (Instant::now(), Duration::from_secs_f64(self.load.job.seconds / 2.0));
        while !running.ended_within(LOOK) {
            if begun.elapsed() > half {
                meter.sample_memory();
            }
            if self.stop.asked() {
                return Err(TrialError::Interrupted);
            }
            if Instant::now() > until {
                let (patience, seconds) = (self.load.patience, self.load.job.seconds);
                return Err(running.error(Fate::Late { patience, seconds }).into());
            }
        }
        Ok(())
    }
}

fn succeeded(running: &mut Running) -> Result<(), ProcessError> {
    let status =
        running.wait(Duration::ZERO).ok_or_else(|| running.error(Fate::StillRuns { after: Duration::ZERO }))?;
    if status.success() { Ok(()) } else { Err(running.error(Fate::Status(status))) }
}
