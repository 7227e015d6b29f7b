//! CPU time and members of a process with all its descendants.

use super::spent::Spent;
use procfs::process::{Stat, all_processes_with_root};
use std::path::Path;

/// The /proc of this PID namespace.
pub const PROC: &str = "/proc";

/// All processes that are visible in this procfs.
pub fn stats(proc: &Path) -> Vec<Stat> {
    all_processes_with_root(proc).into_iter().flatten().filter_map(|process| process.ok()?.stat().ok()).collect()
}

/// CPU time of the process, and of its ended children that were waited for.
pub fn of(stat: &Stat) -> Spent {
    let seconds = |own: u64, children: i64| (own as f64 + children as f64) / procfs::ticks_per_second() as f64;
    Spent { user: seconds(stat.utime, stat.cutime), system: seconds(stat.stime, stat.cstime) }
}

/// The root and all its descendants.
pub fn below(stats: &[Stat], root: u32) -> impl Iterator<Item = &Stat> {
    let mut members = vec![root as i32];
    let mut place = 0;
    while let Some(&parent) = members.get(place) {
        members.extend(stats.iter().filter(|stat| stat.ppid == parent && stat.pid != parent).map(|stat| stat.pid));
        place += 1;
    }
    stats.iter().filter(move |stat| members.contains(&stat.pid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::FromRead;

    fn stat(pid: i32, parent: i32, ticks: [u32; 4]) -> Stat {
        let [user, system, children, kernel] = ticks;
        let line = format!(
            "{pid} (a (b) c) S {parent} 1 1 0 -1 4194560 1 0 0 0 {user} {system} {children} {kernel} 20 0 1 0 100 4096 10 \
             18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
        );
        Stat::from_read(line.as_bytes()).unwrap()
    }

    #[test]
    fn a_tree_has_its_grandchildren_and_nobody_else() {
        let all = [stat(1, 0, [0; 4]), stat(7, 1, [0; 4]), stat(9, 8, [0; 4]), stat(8, 7, [0; 4]), stat(10, 1, [0; 4])];
        let members: Vec<i32> = below(&all, 7).map(|stat| stat.pid).collect();
        assert_eq!(members, [7, 9, 8]);
    }

    #[test]
    fn children_that_were_waited_for_count() {
        let ticks = procfs::ticks_per_second() as u32;
        assert_eq!(of(&stat(7, 1, [ticks, 2 * ticks, 3 * ticks, 4 * ticks])), Spent { user: 4.0, system: 6.0 });
    }
}
