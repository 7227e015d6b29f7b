//! Memory of processes; shared pages count proportionally (PSS).

use procfs::process::{MMapExtension, Process};

/// In bytes; zero for a process that is gone or belongs to another user.
pub fn of(members: &[i32]) -> u64 {
    members.iter().filter_map(|&member| share(member)).sum()
}

fn share(member: i32) -> Option<u64> {
    let rollup = Process::new(member).ok()?.smaps_rollup().ok()?;
    let extensions = rollup.memory_map_rollup.into_iter().map(|map| map.extension);
    Some(extensions.filter_map(|MMapExtension { map, .. }| map.get("Pss").copied()).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_has_memory() {
        assert!(of(&[std::process::id() as i32]) > 100_000);
        assert_eq!(of(&[-1]), 0);
    }
}
