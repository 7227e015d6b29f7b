//! fortio: HTTP/1.1, closed or paced loop. It reports latencies as a histogram with buckets of unequal width.

use super::{Clock, Driver, Job, Latencies, Limits, LoadError, OpenLoop, Outcome, Tool, nanoseconds, words};
use serde::Deserialize;
use std::collections::BTreeMap;

pub(super) struct Fortio;

const REPORT: &str = "fortio.json";

/// Width of the finest buckets in seconds; coarser ones go up to a thousand times as much. A scenario's own `-r` takes precedence.
const RESOLUTION: &str = "0.000001";

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Report {
    /// In nanoseconds.
    actual_duration: f64,
    duration_histogram: Histogram,
    ret_codes: BTreeMap<String, u64>,
    sizes: Option<Total>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Histogram {
    data: Option<Vec<Bucket>>,
}

/// In seconds.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Bucket {
    start: f64,
    end: f64,
    count: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Total {
    sum: f64,
}

impl Driver for Fortio {
    fn limits(&self) -> Limits {
        Limits {
            open_loop: OpenLoop::FromSent,
            clock: Clock::Any,
            counts: true,
            body: true,
            many_connections: true,
            notes: &[
                "fortio's buckets are up to a quarter of their value wide, from 1 ms on at least 1 ms: no tool for small \
                 differences between longer latencies (option -r SECONDS moves the fine ones)",
                "fortio's latencies include those of answers with a wrong status",
                "fortio catches up: what a stalled server has kept from being sent is sent as soon as it can be",
            ],
        }
    }

    fn arguments(&self, job: &Job) -> Result<Vec<String>, LoadError> {
        // `-nocatchup` is not given: with it a stalling server would get fewer requests.
        let (connections, rate) = (job.connections.to_string(), job.rate.unwrap_or(0.0).to_string());
        let mut all = words(["load", "-quiet", "-log-errors=false", "-allow-initial-errors", "-r", RESOLUTION]);
        all.extend(words(["-json", &job.path(REPORT), "-c", &connections, "-qps", &rate]));
        all.extend(match job.count() {
            Some(count) => words(["-n", &count.to_string()]),
            None => words(["-t", &job.milliseconds()]),
        });
        if job.rate.is_some() {
            // Otherwise all connections would send at the same moment.
            all.push("-uniform".to_owned());
        }
        if let Some(bytes) = job.body {
            all.extend(words(["-payload-size", &bytes.to_string()]));
        }
        all.extend_from_slice(&job.options);
        all.push(job.target.clone());
        Ok(all)
    }

    fn read(&self, job: &Job, _stdout: &str) -> Result<Outcome, LoadError> {
        let text = job.read_file(REPORT)?;
        let unclear = |why| LoadError::unclear(Tool::Fortio, why, text.lines().last().unwrap_or_default());
        let report: Report = serde_json::from_str(&text).map_err(unclear)?;
        let mut latency = Latencies::new();
        for bucket in report.duration_histogram.data.unwrap_or_default() {
            latency.record_between(nanoseconds(bucket.start), nanoseconds(bucket.end), bucket.count);
        }
        let (good, bad): (Vec<_>, Vec<_>) = report.ret_codes.iter().partition(|(code, _)| is_good(code));
        let sum = |codes: Vec<(&String, &u64)>| codes.iter().map(|(_, count)| **count).sum::<u64>();
        let requests = sum(good);
        let sent = job.body.unwrap_or(0) * requests;
        Ok(Outcome {
            requests,
            errors: sum(bad),
            seconds: report.actual_duration / 1e9,
            bytes: report.sizes.map(|sizes| sizes.sum as u64 + sent),
            latency: Some(latency),
        })
    }
}

/// A status of -1 means no answer.
fn is_good(code: &str) -> bool {
    code.parse::<i32>().is_ok_and(|code| (200..400).contains(&code))
}
