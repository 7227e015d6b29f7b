//! Starts the broker if none runs.

use crate::locate::{self, LocateError};
use rustix::event::{PollFd, PollFlags};
use rustix::time::Timespec;
use sidestep_broker::client::{Client, ClientError};
use sidestep_broker::listen::Address;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

/// A broker starts within milliseconds. On a machine that thrashes, the program runs without a broker instead of waiting longer.
const START: Duration = Duration::from_secs(5);

/// Why there is no broker.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Locate(#[from] LocateError),
    #[error("cannot start {}", program.display())]
    Spawn { program: PathBuf, source: io::Error },
    /// The broker's own error message.
    #[error("{0}")]
    Said(String),
    #[error("the broker did not start")]
    Silent,
    #[error("the broker was not ready within {} s", START.as_secs())]
    NotReady,
}

/// Makes sure that a broker of this version answers at `address`. It stays as long as this process lives.
pub fn ensure(address: &Address, config: Option<&Path>) -> Result<(), StartError> {
    match ask(address) {
        // A broker that hangs up may have been about to end.
        Err(ClientError::NotRunning(_) | ClientError::HungUp(_)) => {}
        answer => return Ok(answer?),
    }
    let started = start(address, config);
    // If several brokers are started at once, one wins and serves all.
    match (ask(address), started) {
        (Ok(()), _) => Ok(()),
        (Err(ClientError::NotRunning(_)), Err(why)) => Err(why),
        (Err(e), _) => Err(e.into()),
    }
}

fn ask(address: &Address) -> Result<(), ClientError> {
    Client::connect(address)?.stay()
}

fn start(address: &Address, config: Option<&Path>) -> Result<(), StartError> {
    let program = locate::daemon()?;
    let mut command = Command::new(&program);
    command.arg("--background").arg("--address").arg(address.to_string());
    if let Some(file) = config {
        command.arg("--config").arg(file);
    }
    // The broker itself must not use the library.
    command.env_remove("LD_PRELOAD");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|source| StartError::Spawn { program, source })?;
    let said = match child.stderr.take().map(until_ready) {
        Some(Ok(said)) => said,
        _ => {
            give_up(child);
            return Err(StartError::NotReady);
        }
    };
    match child.wait() {
        Ok(status) if status.success() => Ok(()),
        // The broker's first line gives the reason; the second one only says that it did not start.
        _ => Err(said.lines().next().map_or(StartError::Silent, |line| StartError::Said(line.into()))),
    }
}

/// The broker closes its stderr when it is ready. Until then errors may appear there.
fn until_ready(mut stderr: ChildStderr) -> io::Result<String> {
    let deadline = Instant::now() + START;
    let (mut said, mut part) = (Vec::new(), [0; 1024]);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let mut readable = [PollFd::new(&stderr, PollFlags::IN)];
        if rustix::io::retry_on_intr(|| rustix::event::poll(&mut readable, Some(&left)))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match stderr.read(&mut part)? {
            0 => return Ok(String::from_utf8_lossy(&said).into_owned()),
            n => said.extend_from_slice(&part[..n]),
        }
    }
}

fn give_up(mut child: Child) {
    // Errors mean that the broker has already ended.
    let _ = child.kill();
    let _ = child.wait();
}
