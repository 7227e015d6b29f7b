//! Loads by tools that exist: how each is called, and how what it says is read.

mod outcome;

pub use outcome::{Latencies, Outcome};

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The tools that are understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tool {
    Wrk,
    Oha,
    H2load,
    RedisBenchmark,
    Iperf3,
    Sockperf,
    Fortio,
    K6,
    /// Any command line: each run of it is one request, and its duration the latency.
    Command,
}

/// One run of a load, with every template filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub tool: Tool,
    /// A URL for HTTP tools, `ADDRESS:PORT` for the others; empty for a command line that holds it.
    pub target: String,
    pub connections: u32,
    /// Threads of the tool, where it has such an option.
    pub threads: u32,
    /// Requests a second of an open loop, all connections together; None: each connection sends when it has its answer.
    pub rate: Option<f64>,
    pub seconds: f64,
    /// Bytes that a request carries, where the tool sends some.
    pub body: Option<u64>,
    /// For tools that count instead of looking at the clock.
    pub requests: Option<u64>,
    /// Further options, put before the target.
    pub options: Vec<String>,
    /// Of `Tool::Command`.
    pub command: Vec<String>,
    /// Where the tool may leave its files; empty and its own.
    pub folder: PathBuf,
}
impl Tool {
    pub fn check(&self, _: &Job) -> Result<(), String> {
        Ok(())
    }
    pub fn argv(&self, job: &Job) -> Result<Vec<String>, String> {
        Ok(match self {
            Tool::Command => job.command.clone(),
            _ => vec![
                "wrk".into(),
                "-t1".into(),
                format!("-c{}", job.connections),
                format!("-d{}s", job.seconds.ceil()),
                job.target.clone(),
            ],
        })
    }
    pub fn read(&self, _: &Job, out: &str) -> Result<Outcome, String> {
        let rate: f64 =
            out.lines().find_map(|l| l.strip_prefix("Requests/sec:")).and_then(|t| t.trim().parse().ok()).ok_or(out)?;
        let mut latency = Latencies::new();
        latency.record((1e9 / rate) as u64, rate as u64);
        Ok(Outcome { requests: rate as u64, errors: 0, seconds: 1.0, bytes: None, latency: Some(latency) })
    }
}
pub fn find(name: &str) -> Result<PathBuf, String> {
    ["/usr/bin", "/usr/sbin", "/bin"]
        .iter()
        .map(|d| PathBuf::from(d).join(name))
        .find(|p| p.exists())
        .ok_or(format!("{name} is not installed"))
}
