//! The tool `json`: a command line that measures by itself and prints its result in JSON.

use super::{Clock, Driver, Job, Latencies, Limits, LoadError, OpenLoop, Outcome, Tool};
use serde::Deserialize;

pub(super) struct Json;

/// The last line of the output.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    requests: u64,
    #[serde(default)]
    errors: u64,
    seconds: f64,
    #[serde(default)]
    bytes: Option<u64>,
    /// Pairs of nanoseconds and the number of requests that took so long.
    #[serde(default)]
    latencies: Option<Vec<(u64, u64)>>,
}

impl Driver for Json {
    fn limits(&self) -> Limits {
        Limits {
            open_loop: OpenLoop::None,
            clock: Clock::Any,
            counts: false,
            body: false,
            many_connections: false,
            notes: &[],
        }
    }

    fn check(&self, job: &Job) -> Result<(), LoadError> {
        match job.command.is_empty() {
            true => Err(LoadError::settings(Tool::Json, "its command line is empty")),
            false => Ok(()),
        }
    }

    /// The command gets the duration as an option.
    fn arguments(&self, job: &Job) -> Result<Vec<String>, LoadError> {
        let time = ["--seconds".to_owned(), job.seconds.to_string()];
        Ok(job.command[1..].iter().cloned().chain(time).collect())
    }

    fn read(&self, _job: &Job, stdout: &str) -> Result<Outcome, LoadError> {
        let text = stdout.lines().next_back().unwrap_or_default();
        let line: Line = serde_json::from_str(text).map_err(|why| LoadError::unclear(Tool::Json, why, text))?;
        let latency = line.latencies.map(|pairs| {
            let mut all = Latencies::new();
            pairs.into_iter().for_each(|(nanoseconds, times)| all.record(nanoseconds, times));
            all
        });
        let Line { requests, errors, seconds, bytes, .. } = line;
        Ok(Outcome { requests, errors, seconds, bytes, latency })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn job() -> Job {
        Job {
            tool: Tool::Json,
            target: String::new(),
            connections: 1,
            threads: 1,
            rate: None,
            seconds: 0.25,
            body: None,
            requests: None,
            options: Vec::new(),
            command: ["bench", "dial"].map(String::from).to_vec(),
            folder: PathBuf::new(),
        }
    }

    #[test]
    fn the_last_line_is_what_was_found() {
        let said = "a word\n{\"requests\": 3, \"seconds\": 0.5, \"latencies\": [[1000, 2], [3000, 1]]}\n";
        let outcome = Tool::Json.read(&job(), said).expect("an outcome");
        assert_eq!((outcome.requests, outcome.errors, outcome.seconds), (3, 0, 0.5));
        assert_eq!(outcome.latency.map(|all| (all.count(), all.percentile(50.0))), Some((3, 1_000)));
        assert_eq!(Tool::Json.argv(&job()).expect("words"), ["bench", "dial", "--seconds", "0.25"]);
    }

    #[test]
    fn what_is_no_such_line_is_told() {
        for said in [
            "",
            "ready",
            "{\"requests\": 3}",
            "{\"requests\": 0, \"seconds\": 1}",
            "{\"requests\": -1, \"seconds\": 1}",
        ] {
            assert!(Tool::Json.read(&job(), said).is_err(), "{said}");
        }
        let nothing = Job { command: Vec::new(), ..job() };
        assert!(Tool::Json.check(&nothing).is_err_and(|why| why.to_string().contains("its command line is empty")));
    }
}
