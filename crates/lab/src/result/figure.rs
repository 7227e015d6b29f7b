//! The figures that are compared, and how they are computed from a trial.

use super::Trial;
use serde::{Deserialize, Serialize};

/// A quantity of a trial. Scenarios and results name it in kebab case, such as `machine-cpu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// Answered requests a second.
    Rate,
    /// Bytes of payload a second.
    Throughput,
    /// Mean latency of a request, in seconds; so are the percentiles that follow.
    Mean,
    /// The median latency.
    P50,
    /// Three of four requests took at most so long.
    P75,
    /// 90 % of the requests took at most so long.
    P90,
    /// 95 % of the requests took at most so long.
    P95,
    /// 99 % of the requests took at most so long.
    P99,
    /// 99.9 % of the requests took at most so long.
    P999,
    /// CPU time of all processes of the scenario, for each request.
    Cpu,
    /// CPU time of the whole machine, for each request.
    MachineCpu,
    /// The most processors in use in any tenth of a second.
    HighestCpu,
    /// Context switches of the whole machine, for each request.
    Switches,
    /// System calls of the whole machine, for each request; missing where they cannot be counted.
    Calls,
    /// Time in soft interrupts, for each request.
    Softirq,
    /// Bytes of all processes of the scenario.
    Memory,
}

/// Which values of a figure are preferable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Rates and throughput.
    Higher,
    /// Times and costs.
    Lower,
}

impl Figure {
    /// In the order in which reports show them, after the judged ones.
    pub const ALL: [Figure; 16] = [
        Figure::Rate,
        Figure::Throughput,
        Figure::Mean,
        Figure::P50,
        Figure::P75,
        Figure::P90,
        Figure::P95,
        Figure::P99,
        Figure::P999,
        Figure::Cpu,
        Figure::MachineCpu,
        Figure::HighestCpu,
        Figure::Switches,
        Figure::Calls,
        Figure::Softirq,
        Figure::Memory,
    ];

    /// The name in reports, for readers.
    pub fn title(self) -> &'static str {
        match self {
            Figure::Rate => "requests/s",
            Figure::Throughput => "bytes/s",
            Figure::Mean => "mean latency",
            Figure::P50 => "p50",
            Figure::P75 => "p75",
            Figure::P90 => "p90",
            Figure::P95 => "p95",
            Figure::P99 => "p99",
            Figure::P999 => "p99.9",
            Figure::Cpu => "CPU a request",
            Figure::MachineCpu => "machine's CPU a request",
            Figure::HighestCpu => "highest CPU",
            Figure::Switches => "context switches a request",
            Figure::Calls => "system calls a request",
            Figure::Softirq => "soft interrupts a request",
            Figure::Memory => "memory",
        }
    }

    /// Higher for rates and throughput, lower for everything else.
    pub fn better(self) -> Better {
        match self {
            Figure::Rate | Figure::Throughput => Better::Higher,
            _ => Better::Lower,
        }
    }

    /// In seconds, bytes, or a count; None: the trial has no such value.
    pub fn of(self, trial: &Trial) -> Option<f64> {
        let (outcome, usage) = (trial.outcome.as_ref()?, &trial.usage);
        let each = |total: f64| (outcome.requests > 0).then(|| total / outcome.requests as f64);
        let percentile = |percent| outcome.latency.as_ref().map(|all| all.percentile(percent) as f64 / 1e9);
        match self {
            Figure::Rate => (outcome.seconds > 0.0).then(|| outcome.requests as f64 / outcome.seconds),
            Figure::Throughput => outcome.bytes.map(|bytes| bytes as f64 / outcome.seconds),
            Figure::Mean => outcome.latency.as_ref().map(|all| all.mean() / 1e9),
            Figure::P50 => percentile(50.0),
            Figure::P75 => percentile(75.0),
            Figure::P90 => percentile(90.0),
            Figure::P95 => percentile(95.0),
            Figure::P99 => percentile(99.0),
            Figure::P999 => percentile(99.9),
            Figure::Cpu => each(usage.cpu()),
            Figure::MachineCpu => each(usage.machine_cpu),
            Figure::HighestCpu => Some(usage.highest_cpu),
            Figure::Switches => each(usage.switches as f64),
            Figure::Calls => each(usage.calls? as f64),
            Figure::Softirq => each(usage.softirq),
            Figure::Memory => Some(usage.processes.values().map(|each| each.memory).sum::<u64>() as f64),
        }
    }
}
