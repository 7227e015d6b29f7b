//! Versions of the programs. Only known programs are asked: others might take the option for something else.

use crate::environment::{Cmd, run};
use crate::result::Program;
use std::path::Path;

/// Programs, and the option that prints the version.
const ASKED: &[(&str, &str)] = &[
    ("nginx", "-v"),
    ("wrk", "-v"),
    ("envoy", "--version"),
    ("fortio", "version"),
    ("go", "version"),
    ("h2load", "--version"),
    ("haproxy", "-v"),
    ("iperf3", "--version"),
    ("k6", "version"),
    ("memcached", "--version"),
    ("node", "--version"),
    ("oha", "--version"),
    ("postgres", "--version"),
    ("python3", "--version"),
    ("redis-benchmark", "--version"),
    ("redis-server", "--version"),
    ("sidestep", "--version"),
    ("sidestepd", "--version"),
    ("sidestep-agent", "--version"),
    ("sockperf", "--version"),
    ("stress-ng", "--version"),
];

pub fn detect(path: &str) -> Program {
    let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let question = ASKED.iter().find(|(known, _)| *known == name).map(|(_, question)| *question);
    Program { path: path.into(), version: question.and_then(|question| ask(path, question)) }
}

/// Some print it on standard error, some exit with an error: the first line with a number counts.
fn ask(path: &str, question: &str) -> Option<String> {
    let command = Cmd::new("version", &["sh", "-c", "\"$0\" \"$1\" 2>&1; true", path, question]);
    let said = run(&command, None).ok()?;
    let line = said.lines().find(|line| line.chars().any(|c| c.is_ascii_digit()))?;
    Some(line.trim().chars().take(120).collect())
}
