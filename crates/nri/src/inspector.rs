//! Looks at entrypoints, beside the requests: no container waits for it.
//!
//! When a container is created, its files cannot be reached: its root is mounted by the runtime's shim later. When it is about to
//! start, its first process waits, already in the root that the program will see. The plugin opens that root and answers; a thread
//! looks at the files behind it. A file system that never answers stops that thread, and nothing else: what would have been looked
//! at later is counted.

use crate::entrypoint::obstacle;
use crate::report::{Reporter, Subject};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use sidestep_injection::{Outcome, Reason};
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

/// Most containers that wait; more do not start at a time on a node.
const WAITING: usize = 128;

struct Job {
    root: OwnedFd,
    program: String,
    path: Option<String>,
    subject: Subject,
}

/// Hands containers to the thread.
pub struct Inspector {
    jobs: SyncSender<Job>,
    proc: PathBuf,
    reporter: Reporter,
}

impl Inspector {
    /// `proc`: a proc(5) of the host.
    pub fn start(proc: PathBuf, reporter: Reporter) -> io::Result<Inspector> {
        let (jobs, waiting) = sync_channel(WAITING);
        let thread = reporter.clone();
        std::thread::Builder::new().name("inspector".into()).spawn(move || inspect(&waiting, &thread))?;
        Ok(Inspector { jobs, proc, reporter })
    }

    /// A container with the library is about to start; `pid` is its first process.
    pub fn submit(&self, pid: u32, args: &[String], env: &[String], subject: Subject) {
        let (Ok(root), Some(program)) = (self.root(pid), args.first()) else {
            return self.reporter.container(&subject, Outcome::Unknown(Reason::UnknownProgram));
        };
        let path = env.iter().find_map(|entry| entry.strip_prefix("PATH=")).map(str::to_owned);
        let job = Job { root, program: program.clone(), path, subject };
        if let Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) = self.jobs.try_send(job) {
            self.reporter.container(&job.subject, Outcome::Unknown(Reason::NotInspected));
        }
    }

    /// Asks no file system of the container.
    fn root(&self, pid: u32) -> rustix::io::Result<OwnedFd> {
        let path = self.proc.join(pid.to_string()).join("root");
        rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
    }
}

fn inspect(jobs: &Receiver<Job>, reporter: &Reporter) {
    for job in jobs {
        if let Some(reason) = obstacle(job.root.as_fd(), &job.program, job.path.as_deref()) {
            let outcome = match reason {
                Reason::UnknownProgram => Outcome::Unknown(reason),
                _ => Outcome::NoEffect(reason),
            };
            reporter.container(&job.subject, outcome);
        }
    }
}
