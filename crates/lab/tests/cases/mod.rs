//! The jobs of the recorded runs.

use sidestep_lab::load::{Job, Tool};
use std::path::{Path, PathBuf};

pub struct Case {
    /// Name of its directory.
    pub name: &'static str,
    tool: Tool,
    target: &'static str,
    change: fn(&mut Job),
}

const HTTP: &str = "http://127.0.0.1:8080/";
const MISSING: &str = "http://127.0.0.1:8080/missing";
/// A URL without a server.
const NOBODY: &str = "http://127.0.0.1:9/";

fn nothing(_: &mut Job) {}
fn brief(job: &mut Job) {
    job.seconds = 0.3;
}
fn twenty(job: &mut Job) {
    job.requests = Some(20);
}
fn post(job: &mut Job) {
    (job.requests, job.body) = (Some(20), Some(1000));
}
fn paced(job: &mut Job) {
    (job.seconds, job.rate) = (0.3, Some(100.0));
}
/// Limits the time, and the rate.
fn bursts(job: &mut Job) {
    brief(job);
    job.options = ["--burst-delay", "100ms", "--burst-rate", "2"].map(String::from).to_vec();
}
fn h1(job: &mut Job) {
    twenty(job);
    job.options = vec!["--h1".into()];
}
fn body(job: &mut Job) {
    job.body = Some(1000);
}
fn set(job: &mut Job) {
    (job.requests, job.body) = (Some(5000), Some(64));
    job.options = vec!["-t".into(), "set".into()];
}
fn set_get(job: &mut Job) {
    job.requests = Some(1000);
    job.options = vec!["-t".into(), "set,get".into()];
}
fn unknown(job: &mut Job) {
    job.requests = Some(5);
    job.options = vec!["FOO".into()];
}
fn alone(job: &mut Job) {
    (job.connections, job.body) = (1, Some(64));
    job.options = vec!["ping-pong".into(), "--mps".into(), "100".into()];
}
fn under_load(job: &mut Job) {
    (job.connections, job.rate, job.body) = (1, Some(100.0), Some(64));
}
fn throughput(job: &mut Job) {
    (job.connections, job.body) = (1, Some(64));
    job.options = vec!["throughput".into()];
}
fn rate(job: &mut Job) {
    job.rate = Some(50.0);
}

pub const CASES: &[Case] = &[
    Case { name: "wrk/get", tool: Tool::Wrk, target: HTTP, change: nothing },
    Case { name: "wrk/post", tool: Tool::Wrk, target: HTTP, change: body },
    Case { name: "wrk/missing", tool: Tool::Wrk, target: MISSING, change: nothing },
    Case { name: "wrk/nobody", tool: Tool::Wrk, target: NOBODY, change: nothing },
    Case { name: "oha/get", tool: Tool::Oha, target: HTTP, change: twenty },
    Case { name: "oha/post", tool: Tool::Oha, target: HTTP, change: post },
    Case { name: "oha/paced", tool: Tool::Oha, target: HTTP, change: paced },
    Case { name: "oha/bursts", tool: Tool::Oha, target: HTTP, change: bursts },
    Case { name: "oha/missing", tool: Tool::Oha, target: MISSING, change: twenty },
    Case { name: "oha/nobody", tool: Tool::Oha, target: NOBODY, change: paced },
    Case { name: "h2load/get", tool: Tool::H2load, target: "http://127.0.0.1:8081/", change: twenty },
    Case { name: "h2load/post", tool: Tool::H2load, target: "http://127.0.0.1:8081/", change: post },
    Case { name: "h2load/paced", tool: Tool::H2load, target: "http://127.0.0.1:8081/", change: paced },
    Case { name: "h2load/missing", tool: Tool::H2load, target: MISSING, change: h1 },
    Case { name: "h2load/nobody", tool: Tool::H2load, target: NOBODY, change: twenty },
    Case { name: "redis-benchmark/set", tool: Tool::RedisBenchmark, target: "127.0.0.1:6390", change: set },
    Case { name: "redis-benchmark/set-get", tool: Tool::RedisBenchmark, target: "127.0.0.1:6390", change: set_get },
    Case { name: "redis-benchmark/unknown", tool: Tool::RedisBenchmark, target: "127.0.0.1:6390", change: unknown },
    Case { name: "iperf3/stream", tool: Tool::Iperf3, target: "127.0.0.1:5300", change: nothing },
    Case { name: "iperf3/nobody", tool: Tool::Iperf3, target: "127.0.0.1:9", change: nothing },
    Case { name: "sockperf/ping-pong", tool: Tool::Sockperf, target: "127.0.0.1:11111", change: alone },
    Case { name: "sockperf/under-load", tool: Tool::Sockperf, target: "127.0.0.1:11111", change: under_load },
    Case { name: "sockperf/throughput", tool: Tool::Sockperf, target: "127.0.0.1:11111", change: throughput },
    Case { name: "sockperf/nobody", tool: Tool::Sockperf, target: "127.0.0.1:9", change: alone },
    Case { name: "fortio/get", tool: Tool::Fortio, target: HTTP, change: brief },
    Case { name: "fortio/post", tool: Tool::Fortio, target: HTTP, change: post },
    Case { name: "fortio/paced", tool: Tool::Fortio, target: HTTP, change: paced },
    Case { name: "fortio/missing", tool: Tool::Fortio, target: MISSING, change: twenty },
    Case { name: "fortio/nobody", tool: Tool::Fortio, target: NOBODY, change: twenty },
    Case { name: "k6/get", tool: Tool::K6, target: HTTP, change: twenty },
    Case { name: "k6/post", tool: Tool::K6, target: HTTP, change: post },
    Case { name: "k6/paced", tool: Tool::K6, target: HTTP, change: rate },
    Case { name: "k6/missing", tool: Tool::K6, target: MISSING, change: twenty },
    Case { name: "k6/nobody", tool: Tool::K6, target: NOBODY, change: twenty },
];

impl Case {
    pub fn folder(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded").join(self.name)
    }

    pub fn job(&self) -> Job {
        let mut job = Job {
            tool: self.tool,
            target: self.target.into(),
            connections: 2,
            threads: 1,
            rate: None,
            seconds: 1.0,
            body: None,
            requests: None,
            options: Vec::new(),
            command: Vec::new(),
            folder: self.folder(),
        };
        (self.change)(&mut job);
        job
    }
}
