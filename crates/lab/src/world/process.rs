//! A process that the lab has started, and what it says.

use super::command::Cmd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub struct Running {
    name: String,
    child: Child,
    /// What it says is kept in files: no pipe fills up, nothing waits for a reader.
    out: PathBuf,
    err: PathBuf,
    keep: bool,
    stopped: bool,
}

/// What becomes of what it says.
pub enum Output<'a> {
    /// A server's: shown if it fails. Both streams in one file.
    Log,
    /// A tool's, to be read; with what it reads itself.
    Kept(Option<&'a Path>),
}

/// Lines of a log that an error shows.
const SHOWN: usize = 8;
/// From SIGTERM to SIGKILL.
const PATIENCE: Duration = Duration::from_secs(3);

static COUNT: AtomicU64 = AtomicU64::new(0);

impl Running {
    pub fn start(command: &Cmd, dir: &Path, output: Output) -> Result<Running, String> {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let file = |end: &str| dir.join(format!("{}-{number}.{end}", command.name.replace('/', "_")));
        let (err, out) = match output {
            Output::Log => (file("log"), file("log")),
            Output::Kept(_) => (file("err"), file("out")),
        };
        let input = match output {
            Output::Kept(Some(path)) => {
                Stdio::from(File::open(path).map_err(|why| format!("{}: {why}", path.display()))?)
            }
            _ => Stdio::null(),
        };
        let errors = create(&err)?;
        let outputs = if out == err { errors.try_clone() } else { Ok(create(&out)?) };
        let outputs = outputs.map_err(|why| format!("{}: {why}", out.display()))?;
        // A process group of its own, to be ended with all that it starts.
        let started = command.command().stdin(input).stdout(outputs).stderr(errors).process_group(0).spawn();
        let child = started.map_err(|why| format!("{}: cannot start {}: {why}", command.name, command.words()[0]))?;
        let keep = matches!(output, Output::Log);
        Ok(Running { name: command.name.clone(), child, out, err, keep, stopped: false })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// None if it has not ended by then.
    pub fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + limit;
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            self.ended_within(until.checked_duration_since(Instant::now())?);
        }
    }

    /// Whether it has ended. What it used can still be read from /proc: nobody has waited for it yet.
    pub fn ended_within(&self, limit: Duration) -> bool {
        // A descriptor of the process can be polled for its end.
        let Ok(descriptor) = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty()) else { return true };
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
        poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&limit)).is_ok_and(|ready| ready > 0)
    }

    /// An error if it has ended.
    pub fn check(&mut self) -> Result<(), String> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.error(&format!("has ended by itself ({status})"))),
            Err(why) => Err(self.error(&why.to_string())),
        }
    }

    pub fn output(&self) -> Result<String, String> {
        let bytes = std::fs::read(&self.out).map_err(|why| format!("{}: {why}", self.out.display()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// With the end of what it said.
    pub fn error(&self, what: &str) -> String {
        let said = std::fs::read(&self.err).unwrap_or_default();
        let text = String::from_utf8_lossy(&said).into_owned();
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let tail = lines[lines.len().saturating_sub(SHOWN)..].join("\n    ");
        let tail = if tail.is_empty() { "(nothing)".into() } else { tail };
        format!("{} {what}; it said:\n    {tail}", self.name)
    }

    /// It may end by itself for a while, and is then killed with all that it has started.
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
            if self.wait(PATIENCE).is_none() {
                let _ = kill_process_group(group, Signal::KILL);
                let _ = self.child.wait();
            }
        }
        if !self.keep {
            let _ = std::fs::remove_file(&self.out);
            let _ = std::fs::remove_file(&self.err);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

fn create(path: &Path) -> Result<File, String> {
    File::create(path).map_err(|why| format!("{}: {why}", path.display()))
}
