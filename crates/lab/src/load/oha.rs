//! oha: HTTP/1.1 and 2, closed or open loop. Its JSON has totals and errors, its SQLite file each request. (Its CSV lacks failed
//! requests.)

use super::{Clock, Driver, Job, Latencies, Limits, LoadError, OpenLoop, Outcome, Tool, nanoseconds, words};
use rusqlite::{Connection, OpenFlags};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

pub(super) struct Oha;

const DATABASE: &str = "oha.db";

/// oha's name for requests that were in progress at the end of the time: they are no errors.
const DEADLINE: &str = "aborted due to deadline";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    summary: Summary,
    status_code_distribution: BTreeMap<u16, u64>,
    error_distribution: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Summary {
    /// In seconds.
    total: f64,
    total_data: u64,
}

impl Driver for Oha {
    fn limits(&self) -> Limits {
        Limits {
            open_loop: OpenLoop::FromDue,
            clock: Clock::Any,
            counts: true,
            body: true,
            many_connections: true,
            notes: &[
                "oha's timer has a step of a millisecond: a request is due when that timer fires",
                "oha's open loop sends rate x seconds requests, and takes longer where the server does not keep up",
            ],
        }
    }

    fn arguments(&self, job: &Job) -> Result<Vec<String>, LoadError> {
        let (connections, threads) = (job.connections.to_string(), job.threads.max(1).to_string());
        let database = job.path(DATABASE);
        let mut all = words(["--no-tui", "--output-format", "json", "--db-url", &database]);
        all.extend(words(["-c", &connections, "--worker-threads", &threads]));
        all.extend(end(job));
        if let Some(file) = job.body_file()? {
            all.extend(words(["-m", "POST", "-D", &file]));
        }
        all.extend_from_slice(&job.options);
        all.push(job.target.clone());
        Ok(all)
    }

    fn read(&self, job: &Job, stdout: &str) -> Result<Outcome, LoadError> {
        let unclear = |why| LoadError::unclear(Tool::Oha, why, stdout.lines().last().unwrap_or_default());
        let report: Report = serde_json::from_str(stdout).map_err(unclear)?;
        let (latency, refused) = answers(job)?;
        let answered: u64 = report.status_code_distribution.values().sum();
        if latency.count() + refused != answered {
            let what = format!("it has had {answered} answers, its database has {}", latency.count() + refused);
            return Err(LoadError::unclear(Tool::Oha, what, ""));
        }
        let failed: u64 = report.error_distribution.iter().filter(|(why, _)| *why != DEADLINE).map(|(_, n)| n).sum();
        Ok(Outcome {
            requests: latency.count(),
            errors: failed + refused,
            seconds: report.summary.total,
            bytes: Some(report.summary.total_data),
            latency: Some(latency),
        })
    }
}

/// The options that end the run. In a closed loop oha waits for the last answers, which are the slowest.
fn end(job: &Job) -> Vec<String> {
    let mut all = match job.count() {
        Some(count) => words(["-n", &count.to_string()]),
        None => words(["-w", "-z", &job.milliseconds()]),
    };
    if let Some(rate) = job.rate {
        all.extend(words(["-q", &rate.to_string(), "--latency-correction"]));
    }
    all
}

/// Latencies of good answers, and the number of answers with a wrong status. With `--latency-correction`, `duration` begins when
/// the request was due.
fn answers(job: &Job) -> Result<(Latencies, u64), LoadError> {
    let path = job.file(DATABASE);
    let mut latency = Latencies::new();
    let mut refused = 0;
    let mut each = |seconds: f64, status: u16| match status {
        ..400 => latency.record(nanoseconds(seconds), 1),
        _ => refused += 1,
    };
    let length = std::fs::metadata(&path).map_err(|why| LoadError::file(&path, why))?.len();
    if rows(&path, &mut each).map_err(|why| LoadError::file(&path, why))? != length {
        return Err(LoadError::file(&path, "it is cut off"));
    }
    Ok((latency, refused))
}

/// Returns the length that the file must have: SQLite reads missing bytes of the last page as zeros.
fn rows(path: &Path, each: &mut dyn FnMut(f64, u16)) -> rusqlite::Result<u64> {
    let database = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let mut query = database.prepare("SELECT duration, status FROM oha")?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        each(row.get(0)?, row.get(1)?);
    }
    let length = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size";
    database.query_row(length, [], |row| row.get::<_, i64>(0)).map(|length| length as u64)
}
