//! Loads by existing tools: how each is called, and how its output is read.

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
pub(crate) use programs::find_program;
pub use programs::require_program;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The supported tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tool {
    /// HTTP/1.1, in a closed loop only.
    Wrk,
    /// HTTP/1.1 and 2; at a rate, latencies begin when a request was due.
    Oha,
    /// HTTP/2, or 1.1 with `--h1`; of the package nghttp2.
    H2load,
    /// Redis commands, in a closed loop; it sends a number of requests instead of stopping after a time.
    RedisBenchmark,
    /// A stream of blocks in one direction, each of which counts as a request; it has no latencies.
    Iperf3,
    /// Messages on one TCP connection.
    Sockperf,
    /// HTTP/1.1, also at a rate.
    Fortio,
    /// HTTP/1.1 and 2, also at a rate, by a generated script.
    K6,
    /// A command line that measures by itself.
    Json,
    /// Any command line: each run is one request, and its duration the latency.
    Command,
}

/// One run of a load, with all templates filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Which program to start. Each uses only some of the following fields.
    pub tool: Tool,
    /// A URL for HTTP tools, `ADDRESS:PORT` for the others; empty if the command line contains it.
    pub target: String,
    /// At least 1; they exist at the same time.
    pub connections: u32,
    /// Threads of the tool, where it has such an option.
    pub threads: u32,
    /// Requests a second of an open loop, over all connections; None: each connection sends when it has its answer.
    pub rate: Option<f64>,
    /// Duration of the measurement; not used if the job ends by `requests`.
    pub seconds: f64,
    /// Bytes in a request, for tools that send any.
    pub body: Option<u64>,
    /// Number of requests, for tools without a clock.
    pub requests: Option<u64>,
    /// Further options, put before the target.
    pub options: Vec<String>,
    /// For `Tool::Json` and `Tool::Command`.
    pub command: Vec<String>,
    /// The tool's own directory for files, initially empty.
    pub folder: PathBuf,
}

/// What this directory implements for each tool.
trait Driver {
    fn limits(&self) -> Limits;

    /// Checks that go beyond the limits.
    fn check(&self, _job: &Job) -> Result<(), LoadError> {
        Ok(())
    }

    /// The tool's arguments. Writes the files that they name into the job's folder.
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

    /// The name in scenarios and messages.
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

    /// The program to start: the tool, or the first word of the command line.
    pub fn program(self, job: &Job) -> &str {
        match self {
            Tool::Json | Tool::Command => job.command.first().map_or("", String::as_str),
            tool => tool.name(),
        }
    }

    /// What the tool can do, and what a reader of its figures must know.
    pub fn limits(self) -> Limits {
        self.driver().limits()
    }

    /// Checks whether the tool can do the job, before anything is started.
    pub fn check(self, job: &Job) -> Result<(), LoadError> {
        self.limits().check(self, job)?;
        self.driver().check(job)
    }

    /// The command line, beginning with the program's name. Writes the files that it names into the job's folder.
    pub fn argv(self, job: &Job) -> Result<Vec<String>, LoadError> {
        self.check(job)?;
        let mut argv = vec![self.program(job).to_owned()];
        argv.extend(self.driver().arguments(job)?);
        Ok(argv)
    }

    /// The outcome, from the tool's standard output and the files that it left in the job's folder.
    ///
    /// Check the exit status, too: redis-benchmark may have left out its last report. (Several tools exit with 0 after a failure;
    /// this function detects that.) And the tool needs a time limit: without a server redis-benchmark tries for ever.
    pub fn read(self, job: &Job, stdout: &str) -> Result<Outcome, LoadError> {
        let outcome = self.driver().read(job, stdout)?;
        match outcome.requests + outcome.errors {
            0 => Err(LoadError::NoRequests { tool: self }),
            _ => Ok(outcome),
        }
    }
}

impl Job {
    /// The number of requests, if it limits the run instead of the time. It also limits an open loop: at the end of the time, tools
    /// forget requests that were due and not yet sent, so requests that a slow server has delayed would never count.
    fn count(&self) -> Option<u64> {
        self.requests.or(self.rate.map(|rate| (rate * self.seconds).round().max(1.0) as u64))
    }

    /// The duration in the form that most tools take.
    fn milliseconds(&self) -> String {
        format!("{}ms", (self.seconds * 1e3).ceil())
    }

    /// A file in the tool's directory.
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

    /// Writes a file with the content of a request.
    fn body_file(&self) -> Result<Option<String>, LoadError> {
        let text = self.body.map(|bytes| "x".repeat(bytes as usize));
        text.map(|text| self.write("body", &text)).transpose()
    }

    /// With more threads than connections a tool either fails or leaves threads idle.
    fn useful_threads(&self) -> u32 {
        self.threads.min(self.connections).max(1)
    }

    /// `ADDRESS` and `PORT` of a target that is not a URL.
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
