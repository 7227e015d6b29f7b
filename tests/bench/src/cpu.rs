//! CPU time of this thread and of others, in nanoseconds.
//!
//! /proc/PID/schedstat counts what the scheduler has charged to a task. That includes the interrupts and soft interrupts
//! that were handled while it ran, so the work of the network for its packets is in it, except what ksoftirqd took
//! over, which is watched as well.

use std::fs;

use crate::net;

pub struct Cpu {
    watched: Vec<String>,
}

impl Cpu {
    /// `pids`, apart by commas, are watched beside the calling thread.
    pub fn new(pids: &str) -> Result<Cpu, String> {
        let pids = pids.split(',').filter(|pid| !pid.is_empty());
        let cpu = Cpu { watched: pids.map(|pid| format!("/proc/{pid}/schedstat")).collect() };
        cpu.nanos().map(|_| cpu)
    }

    pub fn nanos(&self) -> Result<u64, String> {
        self.watched.iter().try_fold(own()?, |sum, path| Ok(sum + charged(path)?))
    }
}

fn charged(path: &str) -> Result<u64, String> {
    let text = fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
    let first = text.split_whitespace().next().unwrap_or_default();
    first.parse().map_err(|_| format!("{path}: '{first}' is no time"))
}

/// The file of the running task is as old as the last tick; this clock is not.
fn own() -> Result<u64, String> {
    let mut used = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `used` is ours.
    match unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut used) } {
        0 => Ok(used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64),
        _ => Err(net::last("CLOCK_THREAD_CPUTIME_ID")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_time_and_that_of_others_add_up() {
        let alone = Cpu::new("").unwrap();
        let both = Cpu::new(&std::process::id().to_string()).unwrap();
        let before = alone.nanos().unwrap();
        while alone.nanos().unwrap() < before + 1_000_000 {}
        assert!(both.nanos().unwrap() > alone.nanos().unwrap());
    }

    #[test]
    fn who_does_not_run_is_named() {
        assert!(Cpu::new("0").err().unwrap().contains("/proc/0/schedstat"));
    }
}
