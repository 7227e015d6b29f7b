//! A process that the lab has started, and its output.

use super::command::Cmd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{fmt, io};

/// Why a process failed.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    #[error("{name}: cannot start {program}: {source}")]
    Start { name: String, program: String, source: io::Error },
    #[error("{name} {fate}; it said:\n    {}", end_of(said))]
    Failed {
        name: String,
        fate: Fate,
        /// The process's standard error.
        said: String,
    },
    #[error("cannot read what {name} said: {source}")]
    Output { name: String, source: io::Error },
}

/// What happened to a process that should have done otherwise.
#[derive(Debug)]
pub enum Fate {
    EndedAtStart,
    EndedByItself(ExitStatus),
    NotReady {
        seconds: u64,
        missing: String,
    },
    Status(ExitStatus),
    /// A command that has not ended in time.
    StillRuns {
        after: Duration,
    },
    /// A load that has not ended in time.
    Late {
        patience: f64,
        seconds: f64,
    },
    FailedEachTime,
    Lost(io::Error),
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fate::EndedAtStart => write!(f, "has ended at its start"),
            Fate::EndedByItself(status) => write!(f, "has ended by itself ({status})"),
            Fate::NotReady { seconds, missing } => {
                write!(f, "is not ready after {seconds} s: there is no {missing}")
            }
            Fate::Status(status) => write!(f, "failed ({status})"),
            Fate::StillRuns { after } => write!(f, "has not ended after {} s", after.as_secs()),
            Fate::Late { patience, seconds } => {
                write!(f, "has not ended {patience} s after its {seconds} s (load.patience)")
            }
            Fate::FailedEachTime => write!(f, "has failed each time"),
            Fate::Lost(error) => write!(f, "cannot be waited for: {error}"),
        }
    }
}

/// The last lines of an output.
fn end_of(said: &str) -> String {
    let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    match &lines[lines.len().saturating_sub(SHOWN)..] {
        [] => "(nothing)".into(),
        tail => tail.join("\n    "),
    }
}

pub struct Running {
    name: String,
    child: Child,
    /// Output goes to files: no pipe fills up, and nothing waits for a reader.
    out: File,
    err: File,
    stopped: bool,
}

/// Where the output goes.
pub enum Output<'a> {
    /// For servers: both streams go to a log in this directory, which errors quote.
    Log(&'a Path),
    /// For tools: output is kept in memory, to be read. The path is the standard input.
    Kept(Option<&'a Path>),
}

/// Lines of a log in an error.
const SHOWN: usize = 8;
/// Time between SIGTERM and SIGKILL.
const PATIENCE: Duration = Duration::from_secs(3);

impl Running {
    pub fn start(command: &Cmd, output: Output) -> Result<Running, ProcessError> {
        let failed = |source| ProcessError::Start {
            name: command.name.clone(),
            program: command.words().swap_remove(0),
            source,
        };
        let (out, err) = files(command, &output).map_err(failed)?;
        let input = match output {
            Output::Kept(Some(path)) => Stdio::from(File::open(path).map_err(failed)?),
            _ => Stdio::null(),
        };
        let (to_out, to_err) = (out.try_clone().map_err(failed)?, err.try_clone().map_err(failed)?);
        // A process group of its own, so that everything it starts can be ended with it.
        let started = command.command().stdin(input).stdout(to_out).stderr(to_err).process_group(0).spawn();
        Ok(Running { name: command.name.clone(), child: started.map_err(failed)?, out, err, stopped: false })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// None: it has not ended in time.
    pub fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + limit;
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            self.ended_within(until.checked_duration_since(Instant::now())?);
        }
    }

    /// Whether it has ended. It is not reaped, so its CPU time can still be read from /proc.
    pub fn ended_within(&self, limit: Duration) -> bool {
        // A pidfd becomes readable when the process ends.
        let Ok(descriptor) = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty()) else { return true };
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
        poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&limit)).is_ok_and(|ready| ready > 0)
    }

    /// An error if the process has ended.
    pub fn check(&mut self) -> Result<(), ProcessError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.error(Fate::EndedByItself(status))),
            Err(error) => Err(self.error(Fate::Lost(error))),
        }
    }

    pub fn output(&self) -> Result<String, ProcessError> {
        said(&self.out).map_err(|source| ProcessError::Output { name: self.name.clone(), source })
    }

    /// An error with the end of its output.
    pub fn error(&self, fate: Fate) -> ProcessError {
        ProcessError::Failed { name: self.name.clone(), fate, said: said(&self.err).unwrap_or_default() }
    }

    /// Lets it end by itself for a while, then kills it with everything that it has started.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if std::mem::replace(&mut self.stopped, true) {
            return;
        }
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let group = Pid::from_child(&self.child);
            let _ = rustix::process::kill_process(group, Signal::TERM);
            self.ended_within(PATIENCE);
            // Kills what it has started and not ended itself. As long as it is not reaped, the group's number is not reused.
            let _ = kill_process_group(group, Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// Time limit for a command that makes a change and ends.
const STEP_LIMIT: Duration = Duration::from_secs(60);

/// Runs a command to its end, and returns its output. The error quotes its standard error.
pub fn run(command: &Cmd, input: Option<&Path>) -> Result<String, ProcessError> {
    let mut running = Running::start(command, Output::Kept(input))?;
    let status = running.wait(STEP_LIMIT).ok_or_else(|| running.error(Fate::StillRuns { after: STEP_LIMIT }))?;
    if !status.success() {
        return Err(running.error(Fate::Status(status)));
    }
    running.output()
}

/// The files for both streams.
fn files(command: &Cmd, output: &Output) -> std::io::Result<(File, File)> {
    match output {
        Output::Log(dir) => {
            let log = dir.join(format!("{}.log", command.name));
            let log = File::options().create(true).append(true).read(true).open(log)?;
            Ok((log.try_clone()?, log))
        }
        Output::Kept(_) => Ok((in_memory()?, in_memory()?)),
    }
}

fn in_memory() -> std::io::Result<File> {
    Ok(memfd_create("said", MemfdFlags::CLOEXEC)?.into())
}

/// Reads from the beginning: the file offset is shared with the process.
fn said(file: &File) -> std::io::Result<String> {
    let mut bytes = vec![0; file.metadata()?.len() as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
