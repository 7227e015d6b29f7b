//! The tool `command`: any command line, of which each run is one request.

use super::{Clock, Driver, Job, Latencies, Limits, LoadError, OpenLoop, Outcome, Tool};
use std::time::Duration;

pub(super) struct Command;

/// One timed run of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Execution {
    /// From the start of the process to its end.
    pub took: Duration,
    /// Whether it ended with status 0.
    pub succeeded: bool,
}

impl Outcome {
    /// The outcome of repeated runs that took `seconds` altogether. Failed runs are counted, but have no latency.
    pub fn of_executions(executions: &[Execution], seconds: f64) -> Result<Outcome, LoadError> {
        let mut latency = Latencies::new();
        for good in executions.iter().filter(|each| each.succeeded) {
            latency.record(good.took.as_nanos() as u64, 1);
        }
        let (requests, all) = (latency.count(), executions.len() as u64);
        let outcome = Outcome { requests, errors: all - requests, seconds, bytes: None, latency: Some(latency) };
        if all == 0 { Err(LoadError::NoRequests { tool: Tool::Command }) } else { Ok(outcome) }
    }
}

impl Driver for Command {
    fn limits(&self) -> Limits {
        Limits {
            open_loop: OpenLoop::None,
            clock: Clock::Any,
            counts: true,
            body: false,
            many_connections: true,
            notes: &["a latency is the time from the start of the command's process to its end"],
        }
    }

    fn check(&self, job: &Job) -> Result<(), LoadError> {
        match job.command.is_empty() {
            true => Err(LoadError::settings(Tool::Command, "its command line is empty")),
            false => Ok(()),
        }
    }

    fn arguments(&self, job: &Job) -> Result<Vec<String>, LoadError> {
        Ok(job.command[1..].to_vec())
    }

    /// The command's output is ignored.
    fn read(&self, _job: &Job, _stdout: &str) -> Result<Outcome, LoadError> {
        Err(LoadError::settings(Tool::Command, "it is timed from outside: Outcome::of_executions"))
    }
}
