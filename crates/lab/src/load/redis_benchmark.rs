//! redis-benchmark: a closed loop of one or more Redis commands. With `--csv` it reports five percentiles only. Its plain report
//! has two cumulative lists of latencies, one by percentile and one by time, and three more percentiles. All of these are points
//! of the same distribution, so all are used, and requests between two points are spread evenly.

use super::{Clock, Driver, Job, Latencies, Limits, LoadError, OpenLoop, Outcome, Tool, nanoseconds, words};
use std::collections::BTreeMap;

pub(super) struct RedisBenchmark;

impl Driver for RedisBenchmark {
    fn limits(&self) -> Limits {
        Limits {
            open_loop: OpenLoop::None,
            clock: Clock::None,
            counts: true,
            body: true,
            many_connections: true,
            notes: &[
                "redis-benchmark tells p50, p95, p99 and the longest latency; others lie between points that it tells",
                "redis-benchmark's histogram has steps of 8 us: smaller differences of latency are invisible",
            ],
        }
    }

    fn check(&self, job: &Job) -> Result<(), LoadError> {
        job.address().map(drop)
    }

    fn arguments(&self, job: &Job) -> Result<Vec<String>, LoadError> {
        let (address, port) = job.address()?;
        let (connections, requests) = (job.connections.to_string(), job.requests.unwrap_or_default().to_string());
        let mut all = words(["-h", address, "-p", port, "-c", &connections, "-n", &requests, "--precision", "3"]);
        if job.threads > 1 {
            all.extend(words(["--threads", &job.useful_threads().to_string()]));
        }
        if let Some(bytes) = job.body {
            all.extend(words(["-d", &bytes.to_string()]));
        }
        if !job.options.iter().any(|word| word.starts_with("-t")) {
            // By default redis-benchmark runs twenty commands, from PING to LRANGE of 600: a common latency would mean nothing.
            all.extend(words(["-t", "get"]));
        }
        all.extend_from_slice(&job.options);
        Ok(all)
    }

    /// The reports of all commands, one after the other.
    fn read(&self, job: &Job, stdout: &str) -> Result<Outcome, LoadError> {
        let (mut latency, mut seconds) = (Latencies::new(), 0.0);
        // Progress and reports are in the same output: progress ends lines with \r, reports with \n.
        let lines: Vec<&str> = stdout.split(['\r', '\n']).map(str::trim).collect();
        for report in lines.split(|line| line.starts_with("======")).skip(1) {
            let (requests, took) = totals(report)?;
            fill(&mut latency, report, requests)?;
            seconds += took;
        }
        let bytes = job.body.map(|bytes| bytes * latency.count());
        Ok(Outcome { requests: latency.count(), errors: 0, seconds, bytes, latency: Some(latency) })
    }
}

/// Requests and seconds. The report's seconds are rounded to hundredths, so they are calculated from the rate, which is exact.
fn totals(report: &[&str]) -> Result<(u64, f64), LoadError> {
    let requests: u64 = find(report, |line| line.split_once(" requests completed in")?.0.parse().ok())
        .ok_or_else(|| unclear("no line 'requests completed'", report))?;
    let rate: f64 = find(report, |line| {
        line.strip_prefix("throughput summary: ")?.strip_suffix(" requests per second")?.parse().ok()
    })
    .ok_or_else(|| unclear("no line 'throughput summary'", report))?;
    Ok((requests, if rate > 0.0 { requests as f64 / rate } else { 0.0 }))
}

fn fill(latency: &mut Latencies, report: &[&str], requests: u64) -> Result<(), LoadError> {
    let [minimum, p50, p95, p99] = summary(report).ok_or_else(|| unclear("no latency summary", report))?;
    let mut points: BTreeMap<u64, u64> = report.iter().filter_map(|line| point(line)).collect();
    for (percent, value) in [(50.0, p50), (95.0, p95), (99.0, p99)] {
        let at_most = (percent / 100.0 * requests as f64).ceil() as u64;
        let known = points.entry(value).or_default();
        *known = at_most.max(*known);
    }
    let (mut from, mut counted) = (minimum, 0);
    for (to, count) in points {
        latency.record_between(from, to, count.saturating_sub(counted));
        (from, counted) = (to, counted.max(count));
    }
    if counted == requests { Ok(()) } else { Err(unclear("its latencies are not those of all requests", report)) }
}

/// `87.500% <= 0.039 milliseconds (cumulative count 19628)`
fn point(line: &str) -> Option<(u64, u64)> {
    let (time, count) = line.split_once("% <= ")?.1.split_once(" milliseconds (cumulative count ")?;
    Some((nanoseconds(time.parse::<f64>().ok()? / 1e3), count.strip_suffix(')')?.parse().ok()?))
}

/// Below `avg min p50 p95 p99 max`, all in milliseconds: the columns from min to p99.
fn summary(report: &[&str]) -> Option<[u64; 4]> {
    let at = report.iter().position(|line| line.split_whitespace().eq(["avg", "min", "p50", "p95", "p99", "max"]))?;
    let numbers = report[at + 1..].iter().find(|line| !line.is_empty())?.split_whitespace();
    let numbers: Vec<u64> = numbers.filter_map(|word| Some(nanoseconds(word.parse::<f64>().ok()? / 1e3))).collect();
    if numbers.len() == 6 { numbers[1..5].try_into().ok() } else { None }
}

fn find<T>(report: &[&str], of_line: impl Fn(&str) -> Option<T>) -> Option<T> {
    report.iter().find_map(|line| of_line(line))
}

fn unclear(what: &str, report: &[&str]) -> LoadError {
    let last = report.iter().rev().find(|line| !line.is_empty());
    LoadError::unclear(Tool::RedisBenchmark, what, last.unwrap_or(&""))
}
