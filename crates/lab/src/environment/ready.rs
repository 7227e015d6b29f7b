//! Waiting until a process serves, without connecting to it.

use super::process::{Fate, ProcessError, Running};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Conditions that must all hold; without any, a process is ready at once.
#[derive(Clone, Debug, PartialEq)]
pub struct Ready {
    pub port: Option<u16>,
    pub path: Option<PathBuf>,
    pub limit: Duration,
}

const LIMIT: Duration = Duration::from_secs(20);

impl Ready {
    pub fn path(path: &Path) -> Ready {
        Ready { path: Some(path.into()), ..Ready::default() }
    }

    fn is(&self, pid: u32) -> bool {
        self.port.is_none_or(|port| listens(pid, port)) && self.path.as_ref().is_none_or(|path| path.exists())
    }

    fn what(&self) -> String {
        let port = self.port.map(|port| format!("port {port} to listen at"));
        let path = self.path.as_ref().map(|path| path.display().to_string());
        port.into_iter().chain(path).collect::<Vec<_>>().join(" and ")
    }
}

impl Default for Ready {
    fn default() -> Ready {
        Ready { port: None, path: None, limit: LIMIT }
    }
}

const EVERY: Duration = Duration::from_millis(5);

/// An error if the process ends before, or is not ready in time.
pub fn wait(running: &Running, ready: &Ready) -> Result<(), ProcessError> {
    let until = Instant::now() + ready.limit;
    while !ready.is(running.pid()) {
        if running.ended_within(EVERY) {
            return Err(running.error(Fate::EndedAtStart));
        }
        if Instant::now() > until {
            return Err(running.error(Fate::NotReady { seconds: ready.limit.as_secs(), missing: ready.what() }));
        }
    }
    Ok(())
}

/// Whether a socket listens at that port in the network namespace of that process.
fn listens(pid: u32, port: u16) -> bool {
    let tables = ["tcp", "tcp6"].map(|name| std::fs::read_to_string(format!("/proc/{pid}/net/{name}")));
    tables.iter().flatten().any(|table| table.lines().skip(1).any(|line| is_listener(line, port)))
}

/// TCP_LISTEN as in /proc/net/tcp.
const LISTEN: &str = "0A";

fn is_listener(line: &str, port: u16) -> bool {
    let mut words = line.split_whitespace().skip(1);
    let (local, _, state) = (words.next(), words.next(), words.next());
    state == Some(LISTEN) && local.is_some_and(|address| address.ends_with(&format!(":{port:04X}")))
}
