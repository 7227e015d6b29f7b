//! CPU time and members of a cgroup v2. cpu.stat has the usage even if the cpu controller is in cgroup v1.

use super::spent::Spent;
use std::fs;
use std::path::Path;

pub fn spent(cgroup: &Path) -> Option<Spent> {
    parse(&fs::read_to_string(cgroup.join("cpu.stat")).ok()?)
}

fn parse(stat: &str) -> Option<Spent> {
    let microseconds = |key| stat.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<f64>().ok());
    Some(Spent { user: microseconds("user_usec ")? / 1e6, system: microseconds("system_usec ")? / 1e6 })
}

/// Process ids in it and in all below it.
pub fn members(cgroup: &Path) -> Vec<i32> {
    let own = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    let mut members: Vec<i32> = own.lines().filter_map(|line| line.parse().ok()).collect();
    let below = fs::read_dir(cgroup).into_iter().flatten().flatten().map(|entry| entry.path());
    members.extend(below.filter(|path| path.is_dir()).flat_map(|path| self::members(&path)));
    members
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_stat_is_read() {
        let stat = "usage_usec 3500000\nuser_usec 2500000\nsystem_usec 1000000\nnice_usec 0\n";
        assert_eq!(parse(stat), Some(Spent { user: 2.5, system: 1.0 }));
        assert_eq!(parse("usage_usec 1\n"), None);
    }
}
