//! sockperf: messages on one TCP connection. Its mode ping-pong is a closed loop, under-load an open one, and throughput only
//! sends. The first option may name the mode; if not, the rate decides.
//!
//! sockperf reports half of the round trip as latency. Here the whole round trip counts, as for all other tools: the difference
//! of the two times that its full log has for each message.

use super::{Clock, Driver, Job, Latencies, Limits, LoadError, OpenLoop, Outcome, Tool, nanoseconds, words};

pub(super) struct Sockperf;

const LOG: &str = "sockperf.csv";
const MODES: [&str; 3] = ["ping-pong", "under-load", "throughput"];

/// Smallest and default size of a message.
const LEAST: u64 = 14;

impl Driver for Sockperf {
    fn limits(&self) -> Limits {
        Limits {
            open_loop: OpenLoop::FromSent,
            clock: Clock::WholeSeconds,
            counts: false,
            body: true,
            many_connections: false,
            notes: &[
                "sockperf leaves out about 0.45 s of each run, as warm-up and cool-down",
                "sockperf's latency is the whole round trip, not the half that it prints",
            ],
        }
    }

    fn check(&self, job: &Job) -> Result<(), LoadError> {
        job.address()?;
        if job.body.is_some_and(|bytes| bytes < LEAST) {
            return Err(LoadError::settings(Tool::Sockperf, format!("its messages have at least {LEAST} bytes")));
        }
        match (mode(job), job.rate) {
            ("under-load", None) => Err(LoadError::settings(Tool::Sockperf, "under-load needs a rate")),
            ("ping-pong", Some(_)) => Err(LoadError::settings(Tool::Sockperf, "ping-pong has no rate; use under-load")),
            _ => Ok(()),
        }
    }

    fn arguments(&self, job: &Job) -> Result<Vec<String>, LoadError> {
        let (address, port) = job.address()?;
        let (bytes, seconds) = (job.body.unwrap_or(LEAST).to_string(), job.seconds.to_string());
        let mut all = words([mode(job), "--tcp", "-i", address, "-p", port, "-t", &seconds, "-m", &bytes]);
        all.extend(words(["--full-rtt", "--full-log", &job.path(LOG)]));
        if let Some(rate) = job.rate {
            all.extend(words(["--mps", &rate.round().max(1.0).to_string()]));
        }
        if mode(job) == "under-load" {
            // By default only one message of a hundred is answered, and measured.
            all.extend(words(["--reply-every", "1"]));
        }
        let named = usize::from(job.options.first().is_some_and(|word| MODES.contains(&word.as_str())));
        all.extend_from_slice(&job.options[named..]);
        Ok(all)
    }

    fn read(&self, job: &Job, stdout: &str) -> Result<Outcome, LoadError> {
        // After an error the exit status is 0 as well.
        if let Some((_, said)) = stdout.split_once("sockperf: ERROR: ") {
            let said = said.lines().next().unwrap_or_default().to_owned();
            return Err(LoadError::Failed { tool: Tool::Sockperf, said });
        }
        match mode(job) {
            "throughput" => throughput(job, stdout),
            _ => round_trips(job, &job.read_file(LOG)?),
        }
    }
}

fn mode(job: &Job) -> &str {
    let named = job.options.first().map(String::as_str).filter(|word| MODES.contains(word));
    named.unwrap_or(if job.rate.is_some() { "under-load" } else { "ping-pong" })
}

/// `sockperf: Total of 1173639 messages sent in 1.007 sec`
fn throughput(job: &Job, stdout: &str) -> Result<Outcome, LoadError> {
    let line = stdout.lines().find(|line| line.contains("Total of ")).unwrap_or_default();
    let sent = between(line, "Total of ", " messages sent in ").and_then(|count| count.parse().ok());
    let seconds = between(line, " messages sent in ", " sec").and_then(|number| number.parse().ok());
    let (Some(requests), Some(seconds)) = (sent, seconds) else {
        let last = stdout.lines().last().unwrap_or_default();
        return Err(LoadError::unclear(Tool::Sockperf, "no line 'Total of ... messages sent'", last));
    };
    Ok(Outcome { requests, errors: 0, seconds, bytes: Some(requests * job.body.unwrap_or(LEAST)), latency: None })
}

fn round_trips(job: &Job, log: &str) -> Result<Outcome, LoadError> {
    let valid = find(log, "[Valid Duration] ")?;
    let missing = |line| move || LoadError::unclear(Tool::Sockperf, "a number is missing", line);
    let seconds = between(valid, "RunTime=", " sec").and_then(|text| text.parse().ok()).ok_or_else(missing(valid))?;
    let received = valid.split_once("ReceivedMessages=").and_then(|(_, count)| count.trim().parse::<u64>().ok());
    let received = received.ok_or_else(missing(valid))?;
    let lost = find(log, "# dropped messages = ")?;
    let errors = between(lost, "dropped messages = ", ";").and_then(|text| text.parse().ok());
    let latency = messages(log, received)?;
    Ok(Outcome {
        requests: latency.count(),
        errors: errors.ok_or_else(missing(lost))?,
        seconds,
        bytes: Some(2 * latency.count() * job.body.unwrap_or(LEAST)),
        latency: Some(latency),
    })
}

/// The lines below `packet, txTime(sec), rxTime(sec), rtt(usec)`, down to a line of dashes.
fn messages(log: &str, received: u64) -> Result<Latencies, LoadError> {
    let mut latency = Latencies::new();
    let table = log.split_once("packet, ").and_then(|(_, rest)| rest.split_once("\n---"));
    let (table, _) = table.ok_or_else(|| LoadError::unclear(Tool::Sockperf, "its log has no whole table", ""))?;
    for line in table.lines().skip(1) {
        let mut times = line.split(", ").skip(1).map(str::parse::<f64>);
        let (Some(Ok(sent)), Some(Ok(answered))) = (times.next(), times.next()) else {
            return Err(LoadError::unclear(Tool::Sockperf, "its log has another line", line));
        };
        latency.record(nanoseconds(answered - sent), 1);
    }
    let what = || format!("it has received {received} messages, its log has {}", latency.count());
    if latency.count() == received { Ok(latency) } else { Err(LoadError::unclear(Tool::Sockperf, what(), "")) }
}

fn find<'a>(log: &'a str, part: &str) -> Result<&'a str, LoadError> {
    let found = log.lines().find(|line| line.contains(part));
    found.ok_or_else(|| {
        LoadError::unclear(Tool::Sockperf, format!("no line '{part}'"), log.lines().last().unwrap_or_default())
    })
}

fn between<'a>(line: &'a str, start: &str, end: &str) -> Option<&'a str> {
    Some(line.split_once(start)?.1.split_once(end)?.0)
}
