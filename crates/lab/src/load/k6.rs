//! k6: HTTP/1.1 and 2, closed or open loop, by a generated script. Its summary has totals, its CSV each request.

use super::{Clock, Driver, Job, Latencies, Limits, LoadError, OpenLoop, Outcome, Tool, nanoseconds, words};
use serde::Deserialize;
use std::collections::BTreeMap;

pub(super) struct K6;

const SAMPLES: &str = "k6.csv";
const SUMMARY: &str = "k6.json";

#[derive(Deserialize)]
struct Summary {
    metrics: BTreeMap<String, Metric>,
    state: State,
}

#[derive(Deserialize)]
struct Metric {
    values: BTreeMap<String, Option<f64>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct State {
    test_run_duration_ms: f64,
}

impl Driver for K6 {
    fn limits(&self) -> Limits {
        Limits {
            open_loop: OpenLoop::FromSent,
            clock: Clock::Any,
            counts: true,
            body: true,
            many_connections: true,
            notes: &[
                "k6 leaves requests out that find no free connection when they are due; they count as errors",
                "k6's latency begins when the request is sent: neither waiting nor connecting is in it",
            ],
        }
    }

    fn check(&self, job: &Job) -> Result<(), LoadError> {
        let settings = |why| Err(LoadError::settings(Tool::K6, why));
        match (job.requests, job.rate) {
            (Some(_), Some(_)) => settings("it has either a rate or a number of requests"),
            (None, _) if job.seconds < 1.0 => settings("it takes at least a second"),
            // k6 takes only whole numbers of iterations a second.
            (_, Some(rate)) if rate.fract() != 0.0 => settings("its rate is a whole number"),
            _ => Ok(()),
        }
    }

    fn arguments(&self, job: &Job) -> Result<Vec<String>, LoadError> {
        let script = job.write("k6.js", &script(job))?;
        let samples = format!("csv={}", job.path(SAMPLES));
        // k6's API server is switched off: it would listen at one of the machine's ports.
        let mut all = words(["run", "--quiet", "--no-usage-report", "--address", "", "--out", &samples]);
        all.extend_from_slice(&job.options);
        all.push(script);
        Ok(all)
    }

    fn read(&self, job: &Job, _stdout: &str) -> Result<Outcome, LoadError> {
        let text = job.read_file(SUMMARY)?;
        let summary: Summary = serde_json::from_str(&text).map_err(|why| LoadError::unclear(Tool::K6, why, &text))?;
        let count = |name: &str, of: &str| Some((*summary.metrics.get(name)?.values.get(of)?)?.round() as u64);
        let (latency, failed) = samples(&job.read_file(SAMPLES)?)?;
        let all = count("http_reqs", "count").unwrap_or(0);
        if latency.count() + failed != all {
            let what = format!("it has sent {all} requests, its CSV has {}", latency.count() + failed);
            return Err(LoadError::unclear(Tool::K6, what, ""));
        }
        Ok(Outcome {
            requests: latency.count(),
            errors: failed + count("dropped_iterations", "count").unwrap_or(0),
            seconds: summary.state.test_run_duration_ms / 1e3,
            bytes: count("data_received", "count").map(|bytes| bytes + count("data_sent", "count").unwrap_or(0)),
            latency: Some(latency),
        })
    }
}

fn script(job: &Job) -> String {
    let scenario = scenario(job);
    let (target, summary) = (serde_json::json!(job.target), serde_json::json!(job.path(SUMMARY)));
    let request = match job.body {
        Some(bytes) => format!("http.post({target}, 'x'.repeat({bytes}))"),
        None => format!("http.get({target})"),
    };
    format!(
        "import http from 'k6/http';
export const options = {{ scenarios: {{ load: {scenario} }}, discardResponseBodies: true }};
export default function () {{ {request}; }}
export function handleSummary(data) {{ return {{ {summary}: JSON.stringify(data) }}; }}
"
    )
}

/// One virtual user for each connection.
fn scenario(job: &Job) -> serde_json::Value {
    let duration = job.milliseconds();
    let users = job.connections;
    match (job.requests, job.rate) {
        (Some(count), _) => {
            serde_json::json!({ "executor": "shared-iterations", "vus": users, "iterations": count })
        }
        (_, Some(rate)) => serde_json::json!({
            "executor": "constant-arrival-rate", "rate": rate as u64, "timeUnit": "1s", "duration": duration,
            "preAllocatedVUs": users, "maxVUs": users,
        }),
        _ => serde_json::json!({ "executor": "constant-vus", "vus": users, "duration": duration }),
    }
}

/// Latencies of good answers, and the number of all others. The CSV has a line for each sample of each metric, with the value
/// (milliseconds) in the third column. The first line names the columns, of which one is the status.
fn samples(csv: &str) -> Result<(Latencies, u64), LoadError> {
    let mut lines = csv.lines();
    let header = lines.next().unwrap_or_default();
    let width = header.split(',').count();
    let status = header.split(',').position(|name| name == "status");
    let status = status.ok_or_else(|| LoadError::unclear(Tool::K6, "its CSV has no column 'status'", header))?;
    let (mut latency, mut failed) = (Latencies::new(), 0);
    for line in lines.filter(|line| line.starts_with("http_req_duration,")) {
        let columns: Vec<&str> = line.split(',').collect();
        // The last line may be cut off, and its last number with it.
        let number = |at: usize| columns.get(at).filter(|_| columns.len() == width)?.parse::<f64>().ok();
        match (number(2), number(status)) {
            (Some(took), Some(200.0..400.0)) => latency.record(nanoseconds(took / 1e3), 1),
            (Some(_), Some(_)) => failed += 1,
            _ => return Err(LoadError::unclear(Tool::K6, "its CSV has another line", line)),
        }
    }
    Ok((latency, failed))
}
