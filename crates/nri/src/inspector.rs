//! Looks at entrypoints, beside the requests: no container waits for it.
//!
//! When a container is created, its files cannot be reached: its root is mounted by the runtime's shim later. When it is about to
//! start, its first process waits, already in the root that the program will see. The plugin opens that root and answers; a thread
//! looks at the files behind it. A file system that never answers stops that thread, and nothing else: what would have been looked
//! at later is counted. Nor does it keep the roots of those that wait: they are let go of when another container starts.

use crate::entrypoint::obstacle;
use crate::report::{Reporter, Subject};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use sidestep_injection::{Outcome, Reason};
use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Most containers that wait; more do not start at a time on a node.
const WAITING: usize = 128;
/// Longest wait. What waits has the root of its container open, which nobody can unmount meanwhile.
const PATIENCE: Duration = Duration::from_secs(10);

struct Job {
    since: Instant,
    root: OwnedFd,
    program: String,
    path: Option<String>,
    subject: Subject,
}

/// Hands containers to the thread.
pub struct Inspector {
    queue: Arc<Queue>,
    proc: PathBuf,
    reporter: Reporter,
}

impl Inspector {
    /// `proc`: a proc(5) of the host.
    pub fn start(proc: PathBuf, reporter: Reporter) -> io::Result<Inspector> {
        let queue = Arc::new(Queue::default());
        let (waiting, thread) = (queue.clone(), reporter.clone());
        std::thread::Builder::new().name("inspector".into()).spawn(move || {
            loop {
                inspect(waiting.next(), &thread);
            }
        })?;
        Ok(Inspector { queue, proc, reporter })
    }

    /// A container with the library is about to start; `pid` is its first process.
    pub fn submit(&self, pid: u32, args: &[String], env: &[String], subject: Subject) {
        let (Ok(root), Some(program)) = (self.root(pid), args.first()) else {
            return self.reporter.container(&subject, Outcome::Unknown(Reason::UnknownProgram));
        };
        let path = env.iter().find_map(|entry| entry.strip_prefix("PATH=")).map(str::to_owned);
        let job = Job { since: Instant::now(), root, program: program.clone(), path, subject };
        for job in self.queue.add(job) {
            self.reporter.container(&job.subject, Outcome::Unknown(Reason::NotInspected));
        }
    }

    /// Asks no file system of the container.
    fn root(&self, pid: u32) -> rustix::io::Result<OwnedFd> {
        let path = self.proc.join(pid.to_string()).join("root");
        rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
    }
}

/// The containers that wait, the oldest first.
#[derive(Default)]
struct Queue {
    jobs: Mutex<VecDeque<Job>>,
    is_longer: Condvar,
}

impl Queue {
    /// Returns those that are not looked at: what has waited for too long, and this one if too many wait.
    fn add(&self, job: Job) -> Vec<Job> {
        let mut jobs = self.lock();
        let fresh = jobs.partition_point(|waiting| job.since.duration_since(waiting.since) > PATIENCE);
        let mut left_out: Vec<Job> = jobs.drain(..fresh).collect();
        if jobs.len() < WAITING {
            jobs.push_back(job);
            self.is_longer.notify_one();
        } else {
            left_out.push(job);
        }
        left_out
    }

    fn next(&self) -> Job {
        let mut jobs = self.lock();
        loop {
            match jobs.pop_front() {
                Some(job) => return job,
                None => jobs = self.is_longer.wait(jobs).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Job>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn inspect(job: Job, reporter: &Reporter) {
    if let Some(reason) = obstacle(job.root.as_fd(), &job.program, job.path.as_deref()) {
        let outcome = match reason {
            Reason::UnknownProgram => Outcome::Unknown(reason),
            _ => Outcome::NoEffect(reason),
        };
        reporter.container(&job.subject, outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Container, PodSandbox};

    fn job(since: Instant) -> Job {
        let root = std::fs::File::open("/").expect("a root").into();
        let subject = Subject::new(&PodSandbox::default(), &Container::default());
        Job { since, root, program: String::new(), path: None, subject }
    }

    #[test]
    fn who_waits_too_long_is_let_go_of_and_so_are_too_many() {
        let (queue, begun) = (Queue::default(), Instant::now());
        for _ in 0..WAITING {
            assert!(queue.add(job(begun)).is_empty());
        }
        let (soon, late) = (begun + PATIENCE, begun + PATIENCE + Duration::from_millis(1));
        assert!(queue.add(job(soon)).iter().map(|job| job.since).eq([soon]), "the new one");
        assert_eq!(queue.add(job(late)).iter().filter(|job| job.since == begun).count(), WAITING);
        assert_eq!(queue.next().since, late);
    }
}
