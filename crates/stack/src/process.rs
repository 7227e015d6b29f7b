//! A process of the stack, as the others see it.
//!
//! A process that was killed has not ended while one of its threads sleeps in the kernel, and a program can make that last
//! ([`crate::executors`]). Its descriptors stay open, and its pidfd does not become readable. But no thread of it runs a program any
//! more: at most it completes the call that it is in.

use crate::readable::is_readable;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::process::{Signal, pidfd_send_signal};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a process may take to end that was killed.
const PATIENCE: Duration = Duration::from_secs(2);
/// Most need less.
const USUAL: Duration = Duration::from_millis(100);
/// Between two looks at a thread.
const PAUSE: Duration = Duration::from_millis(10);
/// Between two looks whether a process has ended that is waited for by its socket: one that was killed while a thread of it sleeps in the
/// kernel keeps its sockets open.
pub const LOOK: Duration = Duration::from_millis(500);

/// The worker, or the keeper.
pub struct Process {
    pidfd: OwnedFd,
    /// None: it had ended before.
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
        let is_dead = self.number.is_none_or(is_dead);
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

/// Whether a process is a zombie: its first thread has ended.
fn is_dead(number: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{number}/stat")) else { return true };
    stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}
