//! CPU of processes that are none of the scenario's.
//!
//! It is the sum of theirs, not what is left of the machine's: that would have in it the soft interrupts that belong to the
//! scenario, and of the root cgroup's cpu.stat the kernel only knows what it saw from tick to tick. For the same reason
//! threads of the kernel do not count. What ends belongs to who waited for it.

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

/// Seconds, those of ended children in those who waited for them; None where others' processes are hidden (hidepid).
pub struct Foreign(Option<f64>);

impl Foreign {
    /// Of a run in a PID namespace of its own everything there is its own. Elsewhere it is what is watched, and this program.
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

    /// Not below zero: of a process that nobody waits for all is lost at once.
    pub fn since(&self, before: &Foreign) -> Option<f64> {
        Some((self.0? - before.0?).max(0.0))
    }
}

fn members(ours: &[Account], all: &[Stat]) -> HashSet<i32> {
    let own = std::process::id() as i32;
    ours.iter().flat_map(|account| account.members(all)).chain([own]).collect()
}

/// Whether a process of that /proc is of this PID namespace. Of a stranger who may not be asked it is not.
fn is_here(proc: &Path, pid: i32) -> bool {
    let namespace = |root: PathBuf| std::fs::read_link(root.join("ns/pid")).ok();
    let theirs = namespace(proc.join(pid.to_string()));
    theirs.is_some() && theirs == namespace(Path::new(PROC).join("self"))
}

fn sum(all: &[Stat], is_ours: impl Fn(i32) -> bool) -> f64 {
    let foreign = all.iter().filter(|stat| stat.flags & KERNEL_THREAD == 0 && !is_ours(stat.pid));
    foreign.map(tree::of).fold(Spent::default(), Spent::add).total()
}
