//! Reads recorded outputs of the tools, also truncated and wrong ones.

use crate::cases::{CASES, Case};
use proptest::prelude::*;
use serde_json::Value;
use sidestep_lab::load::{LoadError, Outcome, Tool, require_program};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs every tool against the servers of recorded/record.sh, which calls this test.
#[test]
#[ignore = "needs the servers that recorded/record.sh starts"]
fn record() {
    for case in CASES {
        let _ = fs::remove_dir_all(case.folder());
        fs::create_dir_all(case.folder()).expect("a folder");
        let argv = case.job().tool.argv(&case.job()).expect("a job that can be done");
        let program = require_program(&argv[0]).expect("an installed tool");
        let output =
            Command::new("timeout").arg("20").arg(program).args(&argv[1..]).output().expect("a tool that starts");
        println!("{}: {:?}, {}", case.name, argv, output.status);
        fs::write(case.folder().join("stdout"), &output.stdout).expect("a file");
    }
}

fn read_in(case: &Case, folder: &Path) -> Result<Outcome, LoadError> {
    let mut job = case.job();
    job.folder = folder.to_owned();
    let stdout = String::from_utf8_lossy(&fs::read(folder.join("stdout")).expect("recorded")).into_owned();
    job.tool.read(&job, &stdout)
}

fn outcome(name: &str) -> Outcome {
    let case = case(name);
    read_in(case, &case.folder()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn case(name: &str) -> &'static Case {
    CASES.iter().find(|case| case.name == name).expect("a recorded case")
}

fn text(name: &str, file: &str) -> String {
    fs::read_to_string(case(name).folder().join(file)).expect("recorded")
}

fn json(name: &str, file: &str) -> Value {
    serde_json::from_str(&text(name, file)).expect("JSON")
}

/// Compares to three digits; tools round by up to half a microsecond.
#[track_caller]
fn same(nanoseconds: f64, seconds: f64) {
    let other = seconds * 1e9;
    assert!((nanoseconds - other).abs() <= other * 0.002 + 500.0, "{nanoseconds} ns instead of {other} ns");
}

#[track_caller]
fn same_percentile(outcome: &Outcome, percent: f64, seconds: f64) {
    same(outcome.latency.as_ref().expect("latencies").percentile(percent) as f64, seconds);
}

/// The number of requests, wherever it is known beforehand.
#[test]
fn requests_and_errors_are_those_that_there_were() {
    let counted = [
        ("oha/get", 20, 0),
        ("oha/post", 20, 0),
        ("oha/paced", 30, 0),
        ("oha/missing", 0, 20),
        ("oha/nobody", 0, 30),
        ("h2load/get", 20, 0),
        ("h2load/post", 20, 0),
        ("h2load/missing", 0, 20),
        ("h2load/nobody", 0, 20),
        ("redis-benchmark/set", 5000, 0),
        ("redis-benchmark/set-get", 2000, 0),
        ("fortio/post", 20, 0),
        ("fortio/paced", 30, 0),
        ("fortio/missing", 0, 20),
        ("fortio/nobody", 0, 20),
        ("k6/get", 20, 0),
        ("k6/post", 20, 0),
        ("k6/missing", 0, 20),
        ("k6/nobody", 0, 20),
    ];
    for (name, requests, errors) in counted {
        assert_eq!((outcome(name).requests, outcome(name).errors), (requests, errors), "{name}");
    }
}

#[test]
fn every_request_has_its_latency() {
    for case in CASES.iter().filter(|case| !case.name.ends_with("/missing") && !case.name.ends_with("/nobody")) {
        let Ok(outcome) = read_in(case, &case.folder()) else { continue };
        assert!(outcome.seconds > 0.0 && outcome.requests > 0 && outcome.errors == 0, "{}", case.name);
        assert!(outcome.latency.is_none_or(|all| all.count() == outcome.requests), "{}", case.name);
    }
}

#[test]
fn wrk_counts_what_it_prints_and_loses_what_it_added() {
    for name in ["wrk/get", "wrk/post", "wrk/missing"] {
        let (outcome, text) = (outcome(name), text(name, "stdout"));
        let printed = text.lines().find_map(|line| line.trim().split_once(" requests in ")?.0.parse().ok());
        assert_eq!(Some(outcome.requests + outcome.errors), printed);
        assert_eq!(outcome.latency.map(|all| all.count()), printed, "{name}");
    }
    assert_eq!(outcome("wrk/missing").requests, 0);
}

#[test]
fn oha_agrees_with_its_summary() {
    for name in ["oha/get", "oha/post", "oha/paced", "oha/bursts"] {
        let (outcome, json) = (outcome(name), json(name, "stdout"));
        same(
            outcome.latency.as_ref().expect("latencies").mean(),
            json["summary"]["average"].as_f64().expect("a number"),
        );
        same_percentile(&outcome, 100.0, json["summary"]["slowest"].as_f64().expect("a number"));
    }
}

#[test]
fn h2load_agrees_with_its_log() {
    for name in ["h2load/get", "h2load/post", "h2load/paced"] {
        let log = text(name, "h2load.log");
        let mut all: Vec<f64> = log.lines().map(|line| line.rsplit('\t').next().unwrap().parse().unwrap()).collect();
        all.sort_by(f64::total_cmp);
        let outcome = outcome(name);
        same_percentile(&outcome, 50.0, all[all.len().div_ceil(2) - 1] / 1e6);
        same_percentile(&outcome, 100.0, all[all.len() - 1] / 1e6);
        same(outcome.latency.expect("latencies").mean(), all.iter().sum::<f64>() / all.len() as f64 / 1e6);
    }
}

#[test]
fn redis_benchmark_agrees_with_its_summary() {
    let text = text("redis-benchmark/set", "stdout");
    let line = text.lines().skip_while(|line| !line.contains("      min ")).nth(1).expect("a summary");
    let milliseconds: Vec<f64> = line.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    let outcome = outcome("redis-benchmark/set");
    for (percent, at) in [(50.0, 2), (95.0, 3), (99.0, 4), (100.0, 5)] {
        // redis-benchmark rounds to 8 us, and requests within a step are spread over it.
        let told = outcome.latency.as_ref().expect("latencies").percentile(percent) as f64;
        assert!((told - milliseconds[at] * 1e6).abs() <= 8_500.0 + told * 0.002, "p{percent}: {told}, {line}");
    }
}

#[test]
fn iperf3_agrees_with_its_streams() {
    let json = json("iperf3/stream", "stdout");
    let streams = json["end"]["streams"].as_array().expect("streams");
    let bytes = streams.iter().map(|stream| stream["receiver"]["bytes"].as_u64().expect("a number")).sum();
    assert_eq!(outcome("iperf3/stream").bytes, Some(bytes));
    assert_eq!(outcome("iperf3/stream").requests, bytes / 131_072);
}

/// sockperf was told to print whole round trips. Percentiles of few messages are left out: sockperf counts them differently.
#[test]
fn sockperf_agrees_with_its_statistics() {
    for name in ["sockperf/ping-pong", "sockperf/under-load"] {
        let (outcome, text) = (outcome(name), text(name, "sockperf.csv"));
        let told = |what: &str| -> f64 {
            let (_, rest) = text.split_once(what).expect("a line");
            rest.trim().split([' ', '\n']).next().unwrap().parse::<f64>().expect("a number") / 1e6
        };
        same(outcome.latency.as_ref().expect("latencies").mean(), told("avg-rtt="));
        same_percentile(&outcome, 0.0, told("<MIN> observation ="));
        same_percentile(&outcome, 100.0, told("<MAX> observation ="));
    }
}

#[test]
fn fortio_agrees_with_its_percentiles() {
    let (outcome, json) = (outcome("fortio/get"), json("fortio/get", "fortio.json"));
    let histogram = &json["DurationHistogram"];
    for told in histogram["Percentiles"].as_array().expect("percentiles") {
        let (percent, seconds) = (told["Percentile"].as_f64().unwrap(), told["Value"].as_f64().unwrap());
        // fortio interpolates within a bucket that may have few requests.
        let read = outcome.latency.as_ref().expect("latencies").percentile(percent) as f64 / 1e9;
        assert!((read / seconds - 1.0).abs() < 0.05, "p{percent}: {read} instead of {seconds}");
    }
    let mean = outcome.latency.as_ref().expect("latencies").mean() / 1e9;
    assert!((mean / histogram["Avg"].as_f64().expect("a number") - 1.0).abs() < 0.05);
}

#[test]
fn k6_agrees_with_its_summary() {
    for name in ["k6/get", "k6/post", "k6/paced"] {
        let (outcome, json) = (outcome(name), json(name, "k6.json"));
        let told = &json["metrics"]["http_req_duration"]["values"];
        same(outcome.latency.as_ref().expect("latencies").mean(), told["avg"].as_f64().expect("a number") / 1e3);
        same_percentile(&outcome, 100.0, told["max"].as_f64().expect("a number") / 1e3);
    }
}

#[test]
fn failures_are_told_in_words() {
    let said = |name: &str| read_in(case(name), &case(name).folder()).expect_err("a failure").to_string();
    assert!(said("wrk/nobody").contains("standard error tells why"));
    assert!(said("iperf3/nobody").contains("Connection refused"));
    assert!(said("sockperf/nobody").contains("Connection refused"));
    assert!(said("redis-benchmark/unknown").contains("redis-benchmark"));
}

/// The output of a tool that has failed at its start.
#[test]
fn nothing_at_all_is_an_error() {
    for case in CASES {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("stdout"), "").expect("a file");
        assert!(read_in(case, folder.path()).is_err(), "{}", case.name);
    }
}

/// Copies a case with one of its files truncated. Returns the directory, the file's name and its full length.
fn cut(case: &Case, file: usize, part: f64) -> (tempfile::TempDir, String, usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut files: Vec<_> = fs::read_dir(case.folder()).expect("recorded").map(|file| file.unwrap().path()).collect();
    files.sort();
    let chosen = file % files.len();
    let mut whole = 0;
    for (at, path) in files.iter().enumerate() {
        let mut bytes = fs::read(path).expect("recorded");
        if at == chosen {
            whole = bytes.len();
            bytes.truncate((whole as f64 * part).round() as usize);
        }
        fs::write(folder.path().join(path.file_name().unwrap()), bytes).expect("a file");
    }
    (folder, files[chosen].display().to_string(), whole)
}

/// Short reports are truncated at every length: with one digit less, a number is another number.
#[test]
fn a_short_report_may_be_cut_off_anywhere() {
    let mut tried = 0;
    for case in CASES.iter().filter(|case| case.name != "redis-benchmark/set-get") {
        let whole = read_in(case, &case.folder());
        let files = fs::read_dir(case.folder()).expect("recorded").count();
        for file in 0..files {
            let (folder, path, length) = cut(case, file, 1.0);
            let shortened = folder.path().join(Path::new(&path).file_name().expect("a file"));
            for left in (0..length).rev().filter(|_| length < 4096) {
                fs::File::options()
                    .write(true)
                    .open(&shortened)
                    .and_then(|file| file.set_len(left as u64))
                    .expect("cut");
                let read = read_in(case, folder.path());
                assert!(
                    read.is_err() || read.as_ref().ok() == whole.as_ref().ok(),
                    "{path} cut off after {left} bytes"
                );
                tried += 1;
            }
        }
    }
    assert!(tried > 1_000, "{tried} reports");
}

proptest! {
    // Failing cases are not stored: `a_short_report_may_be_cut_off_anywhere` covers them.
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// A truncated report is an error, or what is missing does not matter.
    #[test]
    fn what_is_cut_off_is_never_taken_for_the_whole(at in 0..CASES.len(), file in 0_usize..8, part in 0.0..1.0) {
        let case = &CASES[at];
        // The last one of several reports may be missing as a whole, which only the exit status shows.
        prop_assume!(case.name != "redis-benchmark/set-get");
        let (folder, path, _) = cut(case, file, part);
        match (read_in(case, folder.path()), read_in(case, &case.folder())) {
            (Err(_), _) => {}
            (Ok(read), whole) => prop_assert!(whole.is_ok_and(|whole| read == whole), "{path} cut off after {part}"),
        }
    }
}

#[test]
fn what_a_tool_lacks_is_told_before_it_starts() {
    let mut job = case("wrk/get").job();
    job.rate = Some(100.0);
    assert_eq!(Tool::Wrk.check(&job).unwrap_err().to_string(), "wrk has no open loop; use oha, fortio or k6");
    (job.rate, job.seconds) = (None, 1.5);
    assert_eq!(Tool::Wrk.check(&job).unwrap_err().to_string(), "wrk: it knows whole seconds only, and 1.5 is none");
    let told = Tool::RedisBenchmark.check(&case("iperf3/stream").job()).unwrap_err().to_string();
    assert_eq!(told, "redis-benchmark has no clock; say how many requests it sends");
    job = case("iperf3/stream").job();
    job.target = "http://127.0.0.1:8080/".into();
    let told = Tool::Iperf3.check(&job).unwrap_err().to_string();
    assert!(told.starts_with("iperf3: its target is ADDRESS:PORT"), "{told}");
}
