//! iperf3: a stream of blocks in one direction. It has no requests, so each block of `-l` bytes counts as one.
//!
//! iperf3 reports round-trip times, but these are TCP's own at some moments, not latencies that a program has seen, so they are
//! left out.

use super::{Clock, Driver, Job, Limits, LoadError, OpenLoop, Outcome, Tool, words};
use serde::Deserialize;

pub(super) struct Iperf3;

#[derive(Deserialize)]
struct Report {
    start: Option<Start>,
    end: Option<End>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct Start {
    test_start: Option<Settings>,
}

#[derive(Deserialize)]
struct Settings {
    /// In bytes.
    blksize: u64,
}

#[derive(Deserialize)]
struct End {
    sum_received: Option<Sum>,
    /// The other direction of `--bidir`.
    sum_received_bidir_reverse: Option<Sum>,
}

#[derive(Deserialize)]
struct Sum {
    seconds: f64,
    bytes: u64,
}

impl Driver for Iperf3 {
    fn limits(&self) -> Limits {
        Limits {
            open_loop: OpenLoop::None,
            // iperf3 reads 0.3 as 0, which means for ever.
            clock: Clock::WholeSeconds,
            counts: true,
            body: true,
            many_connections: true,
            notes: &["iperf3 moves bytes and has no latencies; a request is one block"],
        }
    }

    fn check(&self, job: &Job) -> Result<(), LoadError> {
        match job.connections {
            // iperf3's MAX_STREAMS.
            ..=128 => job.address().map(drop),
            more => Err(LoadError::settings(Tool::Iperf3, format!("it has at most 128 connections, not {more}"))),
        }
    }

    fn arguments(&self, job: &Job) -> Result<Vec<String>, LoadError> {
        let (address, port) = job.address()?;
        let mut all = words(["-J", "-c", address, "-p", port, "-P", &job.connections.to_string()]);
        all.extend(match job.requests {
            Some(count) => words(["-k", &count.to_string()]),
            None => words(["-t", &job.seconds.to_string()]),
        });
        if let Some(bytes) = job.body {
            all.extend(words(["-l", &bytes.to_string()]));
        }
        all.extend_from_slice(&job.options);
        Ok(all)
    }

    fn read(&self, _job: &Job, stdout: &str) -> Result<Outcome, LoadError> {
        let unclear = |why: String| LoadError::unclear(Tool::Iperf3, why, stdout.lines().last().unwrap_or_default());
        let report: Report = serde_json::from_str(stdout).map_err(|why| unclear(why.to_string()))?;
        // After an error the exit status is 0 as well.
        if let Some(said) = report.error {
            return Err(LoadError::Failed { tool: Tool::Iperf3, said });
        }
        outcome(report).ok_or_else(|| unclear("it has no end.sum_received or no start.test_start".to_owned()))
    }
}

fn outcome(report: Report) -> Option<Outcome> {
    let (end, block) = (report.end?, report.start?.test_start?.blksize.max(1));
    let there = end.sum_received?;
    let bytes = there.bytes + end.sum_received_bidir_reverse.map_or(0, |back| back.bytes);
    Some(Outcome { requests: bytes / block, errors: 0, seconds: there.seconds, bytes: Some(bytes), latency: None })
}
