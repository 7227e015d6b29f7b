//! h2load: HTTP/2 (HTTP/1.1 with `--h1`), closed or paced loop. Its log file has each request (in microseconds), its summary the
//! failures.

use super::{Clock, Driver, Job, Latencies, Limits, LoadError, OpenLoop, Outcome, Tool, words};

pub(super) struct H2load;

const LOG: &str = "h2load.log";

impl Driver for H2load {
    fn limits(&self) -> Limits {
        Limits {
            open_loop: OpenLoop::FromSent,
            clock: Clock::Any,
            counts: true,
            body: true,
            many_connections: true,
            notes: &["h2load measures whole microseconds, and drops what is under way when the time is over"],
        }
    }

    fn arguments(&self, job: &Job) -> Result<Vec<String>, LoadError> {
        let (connections, threads) = (job.connections.to_string(), job.useful_threads().to_string());
        let mut all = words(["-c", &connections, "-t", &threads, "--log-file", &job.path(LOG)]);
        all.extend(match job.count() {
            Some(count) => words(["-n", &count.to_string()]),
            None => words(["-D", &job.milliseconds()]),
        });
        // h2load's rate is per connection.
        all.extend(job.rate.map(|rate| format!("--rps={}", rate / f64::from(job.connections))));
        if let Some(file) = job.body_file()? {
            all.extend(words(["-d", &file]));
        }
        all.extend_from_slice(&job.options);
        all.push(job.target.clone());
        Ok(all)
    }

    fn read(&self, job: &Job, stdout: &str) -> Result<Outcome, LoadError> {
        let summary = Summary::read(stdout)?;
        // Without any connection h2load writes no log.
        let latency = if summary.succeeded > 0 { answers(&job.read_file(LOG)?)? } else { Latencies::new() };
        if latency.count() != summary.succeeded {
            let what = format!("{} requests succeeded, its log has {}", summary.succeeded, latency.count());
            return Err(LoadError::unclear(Tool::H2load, what, ""));
        }
        Ok(Outcome {
            requests: summary.succeeded,
            errors: summary.total.saturating_sub(summary.succeeded),
            seconds: summary.seconds,
            bytes: Some(summary.bytes + job.body.unwrap_or(0) * summary.total),
            latency: Some(latency),
        })
    }
}

struct Summary {
    seconds: f64,
    total: u64,
    succeeded: u64,
    /// Payload received.
    bytes: u64,
}

impl Summary {
    /// `finished in 300.46ms, ...`, `requests: 8 total, ... 8 succeeded, ...`, `traffic: ... 209.57KB (214604) data`
    fn read(stdout: &str) -> Result<Summary, LoadError> {
        let (finished, requests) = (line(stdout, "finished in ")?, line(stdout, "requests: ")?);
        let traffic = line(stdout, "traffic: ")?;
        let unclear = |line| move || LoadError::unclear(Tool::H2load, "a number is missing", line);
        let data = traffic.rsplit_once('(').and_then(|(_, rest)| rest.strip_suffix(") data")?.parse().ok());
        Ok(Summary {
            seconds: finished.split(',').next().and_then(seconds).ok_or_else(unclear(finished))?,
            total: before(requests, " total").ok_or_else(unclear(requests))?,
            succeeded: before(requests, " succeeded").ok_or_else(unclear(requests))?,
            bytes: data.ok_or_else(unclear(traffic))?,
        })
    }
}

fn line<'a>(stdout: &'a str, start: &str) -> Result<&'a str, LoadError> {
    let found = stdout.lines().find_map(|line| line.strip_prefix(start));
    found.ok_or_else(|| {
        LoadError::unclear(Tool::H2load, format!("no line '{start}'"), stdout.lines().last().unwrap_or_default())
    })
}

/// The number of the list's item with this end.
fn before(list: &str, end: &str) -> Option<u64> {
    list.split(", ").find_map(|item| item.strip_suffix(end)?.parse().ok())
}

/// `300.46ms`, `1.50s`, `870us`, and for more than a minute `1m 3s`, without a fraction.
fn seconds(text: &str) -> Option<f64> {
    const UNITS: [(&str, f64); 5] = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let part = |word: &str| {
        UNITS.iter().find_map(|(unit, length)| Some(word.strip_suffix(unit)?.parse::<f64>().ok()? * length))
    };
    text.split_whitespace().map(part).sum()
}

/// `1795335499435597\t200\t190`: start time, status (-1: none), duration.
fn answers(log: &str) -> Result<Latencies, LoadError> {
    let mut latency = Latencies::new();
    if !log.ends_with('\n') {
        let last = log.lines().last().unwrap_or_default();
        return Err(LoadError::unclear(Tool::H2load, "its log is cut off", last));
    }
    for line in log.lines() {
        let mut columns = line.split('\t').skip(1).map(str::parse::<i64>);
        match (columns.next(), columns.next()) {
            (Some(Ok(200..400)), Some(Ok(microseconds))) => latency.record(microseconds.unsigned_abs() * 1_000, 1),
            (Some(Ok(_)), Some(Ok(_))) => {}
            _ => return Err(LoadError::unclear(Tool::H2load, "its log has another line", line)),
        }
    }
    Ok(latency)
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn durations_have_units() {
        assert_eq!(seconds("300.5ms"), Some(0.3005));
        assert_eq!(seconds("1m 3s"), Some(63.0));
        assert_eq!(seconds("12"), None);
    }
}
