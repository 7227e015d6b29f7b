//! CPU of processes that are none of the scenario's.
//!
//! It is the sum of theirs, not what is left of the machine's: that would have in it the soft interrupts that belong to the
//! scenario, and of the root cgroup's cpu.stat the kernel only knows what it saw from tick to tick. For the same reason
//! threads of the kernel do not count. In a PID namespace only its own processes are seen, and what ends belongs to who waited
//! for it.

use super::account::{Account, Spent};
use super::tree;
use procfs::process::Stat;
use std::collections::HashSet;
use std::ops::Add;

/// PF_KTHREAD of the kernel's sched.h.
const KERNEL_THREAD: u32 = 0x0020_0000;

/// Seconds, those of ended children in those who waited for them; None where others' processes are hidden (hidepid).
pub struct Foreign(Option<f64>);

impl Foreign {
    /// Neither of `ours` nor this program itself.
    pub fn now(ours: &[Account]) -> Foreign {
        let all = tree::stats();
        let mut ours: HashSet<i32> = ours.iter().flat_map(|account| account.members(&all)).collect();
        ours.insert(std::process::id() as i32);
        Foreign(all.iter().any(|stat| stat.pid == 1).then(|| sum(&all, &ours)))
    }

    /// Not below zero: of a process that nobody waits for all is lost at once.
    pub fn since(&self, before: &Foreign) -> Option<f64> {
        Some((self.0? - before.0?).max(0.0))
    }
}

fn sum(all: &[Stat], ours: &HashSet<i32>) -> f64 {
    let foreign = all.iter().filter(|stat| stat.flags & KERNEL_THREAD == 0 && !ours.contains(&stat.pid));
    foreign.map(tree::of).fold(Spent::default(), Spent::add).total()
}
