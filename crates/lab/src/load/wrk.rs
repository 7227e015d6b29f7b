//! wrk: HTTP/1.1, a closed loop. The function `done` of a Lua script prints its histogram (in microseconds).

use super::{Clock, Driver, Job, Latencies, Limits, LoadError, OpenLoop, Outcome, Tool, words};
use serde::Deserialize;
use std::collections::BTreeMap;

pub(super) struct Wrk;

/// Prints all values of the histogram with their counts, as one line of JSON.
const DONE: &str = r#"
done = function(summary, latency, requests)
  local pairs_of = {}
  for i = 1, #latency do
    pairs_of[i] = string.format("[%d,%d]", latency(i))
  end
  local e = summary.errors
  io.write(string.format(
    '{"requests":%d,"duration":%d,"bytes":%d,"socket":%d,"status":%d,"timeout":%d,"latency":[%s]}\n',
    summary.requests, summary.duration, summary.bytes, e.connect + e.read + e.write, e.status, e.timeout,
    table.concat(pairs_of, ",")))
end
"#;

#[derive(Deserialize)]
struct Report {
    /// All answers, whatever the status.
    requests: u64,
    /// In microseconds.
    duration: u64,
    bytes: u64,
    socket: u64,
    status: u64,
    timeout: u64,
    /// Pairs of microseconds and count.
    latency: Vec<(u64, u64)>,
}

impl Driver for Wrk {
    fn limits(&self) -> Limits {
        Limits {
            open_loop: OpenLoop::None,
            clock: Clock::WholeSeconds,
            counts: false,
            body: true,
            many_connections: true,
            notes: &[
                "wrk measures whole microseconds, and its latencies include those of answers with a wrong status",
                "what wrk adds to its histogram for coordinated omission is taken out again",
            ],
        }
    }

    fn check(&self, job: &Job) -> Result<(), LoadError> {
        let threads = job.useful_threads();
        if !job.connections.is_multiple_of(threads) {
            // wrk would round the number of connections down, but use the full number in its correction.
            let why = format!("{} connections cannot be shared evenly by {threads} threads", job.connections);
            return Err(LoadError::settings(Tool::Wrk, why));
        }
        match job.options.iter().find(|word| word.starts_with("-s") || word.starts_with("--script")) {
            Some(_) => Err(LoadError::settings(Tool::Wrk, "it takes one script, and the lab needs its own")),
            None => Ok(()),
        }
    }

    fn arguments(&self, job: &Job) -> Result<Vec<String>, LoadError> {
        let script = job.write("wrk.lua", &script(job.body))?;
        let (threads, connections) = (job.useful_threads().to_string(), job.connections.to_string());
        let seconds = format!("{}s", job.seconds);
        let mut all = words(["-t", &threads, "-c", &connections, "-d", &seconds, "-s", &script]);
        all.extend_from_slice(&job.options);
        all.push(job.target.clone());
        Ok(all)
    }

    fn read(&self, job: &Job, stdout: &str) -> Result<Outcome, LoadError> {
        let line = stdout.lines().find(|line| line.starts_with("{\"requests\"")).ok_or_else(|| {
            let what = "its script has not reported; what it says on standard error tells why";
            LoadError::unclear(Tool::Wrk, what, stdout.lines().last().unwrap_or_default())
        })?;
        let report: Report = serde_json::from_str(line).map_err(|why| LoadError::unclear(Tool::Wrk, why, line))?;
        let mut latency = Latencies::new();
        for (microseconds, times) in measured(&report, job.connections)? {
            latency.record(microseconds * 1_000, times);
        }
        let bad = report.status + report.timeout;
        Ok(Outcome {
            requests: report.requests.saturating_sub(bad),
            errors: bad + report.socket,
            seconds: report.duration as f64 / 1e6,
            bytes: Some(report.bytes),
            latency: Some(latency),
        })
    }
}

fn script(body: Option<u64>) -> String {
    let post = body.map(|bytes| format!("wrk.method = \"POST\"\nwrk.body = string.rep(\"x\", {bytes})\n"));
    post.unwrap_or_default() + DONE
}

/// The histogram as measured. Before the script gets it, wrk adds corrections for coordinated omission: with `interval` as the mean
/// time between a connection's requests, each value n >= 2 * interval adds one each of n - interval, n - 2 * interval, ... above
/// interval. wrk starts with the lowest n, so starting with the highest n finds what it has added.
fn measured(report: &Report, connections: u32) -> Result<BTreeMap<u64, u64>, LoadError> {
    let mut all: BTreeMap<u64, u64> = report.latency.iter().copied().collect();
    let total: u64 = all.values().sum();
    let each = report.requests / u64::from(connections.max(1));
    // Late answers are not in the histogram.
    if each > 0 && total > report.requests.saturating_sub(report.timeout) {
        subtract(&mut all, (report.duration / each).max(1));
    }
    // Pipelined requests share a latency, so there may be fewer latencies than requests.
    match all.values().sum::<u64>() <= report.requests {
        true => Ok(all),
        false => Err(LoadError::unclear(Tool::Wrk, "it has more latencies than requests", "")),
    }
}

fn subtract(all: &mut BTreeMap<u64, u64>, interval: u64) {
    let long: Vec<u64> = all.range(2 * interval..).rev().map(|(value, _)| *value).collect();
    for value in long {
        let count = all[&value];
        let mut below = value - interval;
        while count > 0 && below > interval {
            all.entry(below).and_modify(|times| *times = times.saturating_sub(count));
            below -= interval;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// wrk's `stats_correct`, for all values from the lowest on.
    fn corrected(measured: &BTreeMap<u64, u64>, interval: u64) -> BTreeMap<u64, u64> {
        let mut all = measured.clone();
        for (&value, &count) in measured.range(2 * interval..) {
            let mut below = value - interval;
            while below > interval {
                *all.entry(below).or_default() += count;
                below -= interval;
            }
        }
        all
    }

    proptest! {
        #[test]
        fn what_wrk_adds_is_taken_out(
            measured in prop::collection::btree_map(1_u64..3_000, 1_u64..9, 1..40), interval in 1_u64..400,
        ) {
            let mut all = corrected(&measured, interval);
            subtract(&mut all, interval);
            all.retain(|_, times| *times > 0);
            prop_assert_eq!(all, measured);
        }
    }

    #[test]
    fn a_histogram_that_nobody_has_corrected_stays() {
        let report = Report {
            requests: 10,
            duration: 1_000,
            bytes: 0,
            socket: 0,
            status: 0,
            timeout: 1,
            latency: vec![(100, 8), (900, 1)],
        };
        let all = measured(&report, 1).expect("the histogram has at most as many values as requests");
        assert_eq!(all, BTreeMap::from([(100, 8), (900, 1)]));
    }
}
