//! A process of the stack, as the others see it.
//!
//! A process that was killed has not ended while one of its threads sleeps in the kernel, and a program can make that last
//! ([`crate::executors`]). Its descriptors stay open, and its pidfd does not become readable. But no thread of it runs a program any
//! more: at most it completes the call that it is in.

use crate::readable::is_readable;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};
use rustix::thread::gettid;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a process may take to end that was killed.
const PATIENCE: Duration = Duration::from_secs(2);
/// Most need less.
const USUAL: Duration = Duration::from_millis(100);
/// How long a worker may take to give everything back once it is to end, and how long another process may take in its place.
pub const GRACE: Duration = Duration::from_secs(10);
/// Between two looks at a thread.
const PAUSE: Duration = Duration::from_millis(10);
/// Between two looks whether a process has ended that is waited for by its socket: one that was killed while a thread of it sleeps in the
/// kernel keeps its sockets open.
pub const LOOK: Duration = Duration::from_millis(500);

/// The worker, or the keeper.
pub struct Process {
    pidfd: OwnedFd,
    /// None: it had ended before, or no descriptor was left to find out.
    number: Option<u32>,
}

impl Process {
    /// The process of this pidfd.
    pub fn new(pidfd: OwnedFd) -> Process {
        let told = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).unwrap_or_default();
        let number = told.lines().find_map(|line| line.strip_prefix("Pid:")).and_then(|text| text.trim().parse().ok());
        Process { pidfd, number }
    }

    /// Another process can have a copy.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Kills it, and waits until it has ended, or as good as: see [`Process::has_ended`].
    pub fn kill(&self) {
        // It may have ended.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        let began = Instant::now();
        while !is_readable(&self.pidfd, PAUSE) {
            let waited = began.elapsed();
            if waited > PATIENCE || waited > USUAL && self.has_ended() {
                return;
            }
        }
    }

    /// Whether its first thread has ended, and so all that it did for everybody. Others may still sleep.
    pub fn has_ended(&self) -> bool {
        // First this: the number may be another process's only if the process is gone.
        let is_dead = self.number.is_some_and(is_dead);
        is_dead || self.is_gone()
    }

    /// Waits until this thread has ended, for as long as it takes. 0: there is none.
    pub fn wait_for_thread(&self, thread: u32) {
        let Some(number) = self.number.filter(|_| thread != 0) else { return };
        let task = format!("/proc/{number}/task/{thread}");
        while Path::new(&task).exists() && !self.is_gone() {
            std::thread::sleep(PAUSE);
        }
    }

    fn is_gone(&self) -> bool {
        is_readable(&self.pidfd, Duration::ZERO)
    }
}

/// The number of the calling thread, as [`Process::wait_for_thread`] expects it.
pub fn this_thread() -> u32 {
    gettid().as_raw_nonzero().get() as u32
}

/// Whether a process is a zombie, whose first thread has ended, or is gone. One of which the kernel does not tell, as when no descriptor
/// is left, counts as living.
fn is_dead(number: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{number}/stat")) {
        Ok(stat) => stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['Z', 'X'])),
        Err(error) => matches!(Errno::from_io_error(&error), Some(Errno::NOENT | Errno::SRCH)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, getrlimit, pidfd_open, setrlimit};
    use sidestep_testkit::rerun;
    use std::process::{Child, Command};

    const LIMITED: &str = "TEST_WITHOUT_DESCRIPTORS";

    fn process(child: &Child) -> Process {
        Process::new(pidfd_open(Pid::from_child(child), PidfdFlags::empty()).expect("a pidfd"))
    }

    #[test]
    fn only_a_process_that_was_killed_has_ended() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("a process");
        let process = process(&child);
        assert!(!process.has_ended());
        process.kill();
        assert!(process.has_ended(), "a zombie");
        child.wait().expect("it has ended");
        assert!(process.has_ended(), "gone");
    }

    /// In a process of its own: the limit is that of all threads.
    #[test]
    fn a_process_lives_although_no_descriptor_is_left_to_look_at_it() {
        if std::env::var_os(LIMITED).is_none() {
            let test = concat!(module_path!(), "::a_process_lives_although_no_descriptor_is_left_to_look_at_it");
            let mut command = Command::new(std::env::current_exe().expect("own path"));
            let status = command.args(rerun::alone(test)).env(LIMITED, "1").status().expect("own program");
            assert!(status.success());
            return;
        }
        let mut child = Command::new("sleep").arg("60").spawn().expect("a process");
        let process = process(&child);
        let free = rustix::io::dup(std::io::stderr()).expect("dup").as_raw_fd();
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(free as u64), ..before }).expect("a lower limit");
        let has_ended = process.has_ended();
        let look = std::fs::File::open("/proc/self/stat");
        setrlimit(Resource::Nofile, before).expect("the limit as it was");
        process.kill();
        child.wait().expect("it has ended");
        assert!(look.is_err(), "no descriptor is left");
        assert!(!has_ended);
    }
}
