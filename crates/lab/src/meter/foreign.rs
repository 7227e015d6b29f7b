//! CPU time of processes that are not the scenario's.
//!
//! It is the sum over these processes, not the machine's total minus the scenario's: the difference would include soft interrupts
//! that the scenario causes, and the kernel samples the total (the root cgroup's cpu.stat) only at ticks. For the same reason
//! kernel threads do not count. CPU time of an ended process counts for the process that waited for it.

use super::account::Account;
use super::spent::Spent;
use super::tree::PROC;
use super::{Watched, tree};
use procfs::process::Stat;
use std::collections::HashSet;
use std::ops::Add;
use std::path::{Path, PathBuf};

/// PF_KTHREAD of the kernel's sched.h.
const KERNEL_THREAD: u32 = 0x0020_0000;

/// Seconds, including those of ended children that were waited for; None if other users' processes are hidden (hidepid).
pub struct Foreign(Option<f64>);

impl Foreign {
    /// If the run has a PID namespace of its own, all processes in it are its own. If not, the watched ones and this one are.
    pub fn now(watched: &Watched) -> Foreign {
        let all = tree::stats(watched.outside.as_deref().unwrap_or(Path::new(PROC)));
        let seen = all.iter().any(|stat| stat.pid == 1);
        let foreign = match &watched.outside {
            Some(proc) => sum(&all, |pid| is_here(proc, pid)),
            None => {
                let ours = members(&watched.all(), &all);
                sum(&all, |pid| ours.contains(&pid))
            }
        };
        Foreign(seen.then_some(foreign))
    }

    /// At least zero: the time of a process that nobody waits for vanishes at once.
    pub fn since(&self, before: &Foreign) -> Option<f64> {
        Some((self.0? - before.0?).max(0.0))
    }
}

fn members(ours: &[Account], all: &[Stat]) -> HashSet<i32> {
    let own = std::process::id() as i32;
    ours.iter().flat_map(|account| account.members(all)).chain([own]).collect()
}

/// Whether a process of that /proc is in this PID namespace. One that may not be inspected is not.
fn is_here(proc: &Path, pid: i32) -> bool {
    let namespace = |root: PathBuf| std::fs::read_link(root.join("ns/pid")).ok();
    let theirs = namespace(proc.join(pid.to_string()));
    theirs.is_some() && theirs == namespace(Path::new(PROC).join("self"))
}

fn sum(all: &[Stat], is_ours: impl Fn(i32) -> bool) -> f64 {
    let foreign = all.iter().filter(|stat| stat.flags & KERNEL_THREAD == 0 && !is_ours(stat.pid));
    foreign.map(tree::of).fold(Spent::default(), Spent::add).total()
}
