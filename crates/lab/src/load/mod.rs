//! Loads by tools that exist: how each is called, and how what it says is read.

mod command;
mod error;
mod fortio;
mod h2load;
mod iperf3;
mod json;
mod k6;
mod limits;
mod oha;
mod outcome;
mod programs;
mod redis_benchmark;
mod sockperf;
mod wrk;

pub use command::Execution;
pub use error::LoadError;
pub use limits::{Clock, Limits, OpenLoop};
pub use outcome::{Latencies, Outcome};
pub use programs::{find_program, install_hint, require_program};
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
    /// A command line that measures by itself.
    Json,
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
    /// Of `Tool::Json` and `Tool::Command`.
    pub command: Vec<String>,
    /// Where the tool may leave its files; empty and its own.
    pub folder: PathBuf,
}

/// What a file of this folder knows about its tool.
trait Driver {
    fn limits(&self) -> Limits;

    /// What the limits do not tell.
    fn check(&self, _job: &Job) -> Result<(), LoadError> {
        Ok(())
    }

    /// Its arguments, after it has written the files that they name into the job's folder.
    fn arguments(&self, job: &Job) -> Result<Vec<String>, LoadError>;

    fn read(&self, job: &Job, stdout: &str) -> Result<Outcome, LoadError>;
}

impl Tool {
    fn driver(self) -> &'static dyn Driver {
        match self {
            Tool::Wrk => &wrk::Wrk,
            Tool::Oha => &oha::Oha,
            Tool::H2load => &h2load::H2load,
            Tool::RedisBenchmark => &redis_benchmark::RedisBenchmark,
            Tool::Iperf3 => &iperf3::Iperf3,
            Tool::Sockperf => &sockperf::Sockperf,
            Tool::Fortio => &fortio::Fortio,
            Tool::K6 => &k6::K6,
            Tool::Json => &json::Json,
            Tool::Command => &command::Command,
        }
    }

    /// As scenarios and messages call it.
    pub fn name(self) -> &'static str {
        match self {
            Tool::Wrk => "wrk",
            Tool::Oha => "oha",
            Tool::H2load => "h2load",
            Tool::RedisBenchmark => "redis-benchmark",
            Tool::Iperf3 => "iperf3",
            Tool::Sockperf => "sockperf",
            Tool::Fortio => "fortio",
            Tool::K6 => "k6",
            Tool::Json => "json",
            Tool::Command => "command",
        }
    }

    /// What is started: the tool, or the first word of the command line.
    pub fn program(self, job: &Job) -> &str {
        match self {
            Tool::Json | Tool::Command => job.command.first().map_or("", String::as_str),
            tool => tool.name(),
        }
    }

    /// What the tool can do, and what a reader of its figures has to know.
    pub fn limits(self) -> Limits {
        self.driver().limits()
    }

    /// Whether the tool can do the job; before anything is started.
    pub fn check(self, job: &Job) -> Result<(), LoadError> {
        self.limits().check(self, job)?;
        self.driver().check(job)
    }

    /// The command line, its first word the program's name. Writes the files that it names into the job's folder.
    pub fn argv(self, job: &Job) -> Result<Vec<String>, LoadError> {
        self.check(job)?;
        let mut argv = vec![self.program(job).to_owned()];
        argv.extend(self.driver().arguments(job)?);
        Ok(argv)
    }

    /// What it has found out, from its standard output and the files that it left in the job's folder.
    ///
    /// Ask for its exit status, too: several tools end with 0 though they failed, which is found here, but redis-benchmark
    /// may have left out its last report. And it needs a time limit: redis-benchmark tries for ever where nobody listens.
    pub fn read(self, job: &Job, stdout: &str) -> Result<Outcome, LoadError> {
        let outcome = self.driver().read(job, stdout)?;
        match outcome.requests + outcome.errors {
            0 => Err(LoadError::NoRequests { tool: self }),
            _ => Ok(outcome),
        }
    }
}

impl Job {
    /// How many requests it is, if not as many as there is time for. So is an open loop with tools that otherwise forget, when
    /// the time is over, what was due and not yet sent: what a slow server has kept from being sent would never be missed.
    fn count(&self) -> Option<u64> {
        self.requests.or(self.rate.map(|rate| (rate * self.seconds).round().max(1.0) as u64))
    }

    /// The duration as most tools take it.
    fn milliseconds(&self) -> String {
        format!("{}ms", (self.seconds * 1e3).ceil())
    }

    /// A file of the tool's own.
    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The same as a word of a command line.
    fn path(&self, name: &str) -> String {
        self.file(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) -> Result<String, LoadError> {
        let path = self.file(name);
        std::fs::write(&path, text).map_err(|why| LoadError::file(&path, why))?;
        Ok(self.path(name))
    }

    fn read_file(&self, name: &str) -> Result<String, LoadError> {
        let path = self.file(name);
        std::fs::read_to_string(&path).map_err(|why| LoadError::file(&path, why))
    }

    /// A file of as many bytes as a request carries.
    fn body_file(&self) -> Result<Option<String>, LoadError> {
        let text = self.body.map(|bytes| "x".repeat(bytes as usize));
        text.map(|text| self.write("body", &text)).transpose()
    }

    /// A tool with more threads than connections either refuses or leaves some idle.
    fn useful_threads(&self) -> u32 {
        self.threads.min(self.connections).max(1)
    }

    /// `ADDRESS` and `PORT` of a target that is no URL.
    fn address(&self) -> Result<(&str, &str), LoadError> {
        let split = self.target.rsplit_once(':').filter(|(address, port)| {
            !address.is_empty() && port.parse::<u16>().is_ok() && !self.target.contains("//")
        });
        let (address, port) = split.ok_or_else(|| {
            let why = format!("its target is ADDRESS:PORT, and '{}' is not", self.target);
            LoadError::settings(self.tool, why)
        })?;
        Ok((address.trim_start_matches('[').trim_end_matches(']'), port))
    }
}

/// Words of a command line.
fn words<const N: usize>(all: [&str; N]) -> Vec<String> {
    all.map(str::to_owned).to_vec()
}

fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}
