//! What the kernel tells of a process from outside.

use std::fs;

/// A look at one process.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Of user and system time together, in clock ticks (1/100 s).
    pub ticks: u64,
    pub descriptors: usize,
    pub mappings: usize,
}

/// None: it is gone, or a zombie.
pub fn look(pid: u32) -> Option<Look> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    if matches!(fields[0], "Z" | "X") {
        return None;
    }
    let ticks = fields[11].parse::<u64>().ok()? + fields[12].parse::<u64>().ok()?;
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count();
    let mappings = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?.lines().count();
    Some(Look { ticks, descriptors, mappings })
}

/// Where each thread of a process sleeps, for whoever has to find out why it does not answer.
pub fn threads(pid: u32) -> String {
    let read = |path: std::path::PathBuf| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.map(|t| format!("[{} {}]", read(t.path().join("wchan")), read(t.path().join("syscall")))).collect()
}
