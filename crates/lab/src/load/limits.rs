//! What tools cannot do, so that a scenario fails before it runs.

use super::{Job, LoadError, Tool};

/// When a tool's latencies begin in an open loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenLoop {
    /// The tool has no open loop: a connection sends only when it has its answer.
    None,
    /// When the request was due: a server that stalls is charged for all that waited (no coordinated omission).
    FromDue,
    /// When the request was sent: time spent waiting for a free connection does not count.
    FromSent,
}

/// How a tool limits its duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Any number of seconds, with fractions.
    Any,
    /// A fraction of a second is refused.
    WholeSeconds,
    /// It has no clock, and only counts requests.
    None,
}

/// What one tool can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Whether a rate can be given, and when latencies then begin.
    pub open_loop: OpenLoop,
    /// Which durations can be given.
    pub clock: Clock,
    /// Whether it can stop after a number of requests.
    pub counts: bool,
    /// Whether the size of its requests can be chosen.
    pub body: bool,
    /// Whether it can use more than one.
    pub many_connections: bool,
    /// What a reader of its figures must know.
    pub notes: &'static [&'static str],
}

impl Limits {
    pub(super) fn check(&self, tool: Tool, job: &Job) -> Result<(), LoadError> {
        self.check_numbers(tool, job)?;
        self.check_end(tool, job)?;
        let lacks = |what, instead| Err(LoadError::Lacks { tool, what, instead });
        if job.rate.is_some() && self.open_loop == OpenLoop::None {
            return lacks("open loop", "use oha, fortio or k6");
        }
        if job.body.is_some() && !self.body {
            return lacks("request bodies", "leave out the body");
        }
        if job.connections > 1 && !self.many_connections {
            return lacks("second connection", "use one connection, or another tool");
        }
        Ok(())
    }

    /// Refuses numbers that are invalid for any tool.
    fn check_numbers(&self, tool: Tool, job: &Job) -> Result<(), LoadError> {
        let positive = |number: f64| number.is_finite() && number > 0.0;
        if job.connections == 0 {
            return Err(LoadError::settings(tool, "it needs at least one connection"));
        }
        if job.requests == Some(0) {
            return Err(LoadError::settings(tool, "no requests are no load"));
        }
        match job.rate {
            _ if !positive(job.seconds) => {
                Err(LoadError::settings(tool, format!("{} s is not a valid duration", job.seconds)))
            }
            Some(rate) if !positive(rate) => Err(LoadError::settings(tool, format!("{rate}/s is no rate"))),
            _ => Ok(()),
        }
    }

    fn check_end(&self, tool: Tool, job: &Job) -> Result<(), LoadError> {
        let lacks = |what, instead| Err(LoadError::Lacks { tool, what, instead });
        match (self.clock, job.requests) {
            (Clock::None, None) => lacks("clock", "say how many requests it sends"),
            (_, Some(_)) if !self.counts => {
                lacks("option to stop after a number of requests", "give it seconds instead")
            }
            (Clock::WholeSeconds, None) if job.seconds.fract() != 0.0 => {
                let why = format!("it knows whole seconds only, and {} is none", job.seconds);
                Err(LoadError::settings(tool, why))
            }
            _ => Ok(()),
        }
    }
}
