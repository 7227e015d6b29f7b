//! What a run leaves that was killed outright, from outside: a scratch directory and a cgroup, both with its pid in the name.

use crate::cgroup;
use std::path::{Path, PathBuf};

const PREFIX: &str = "sidestep-lab-";

pub fn name() -> String {
    format!("{PREFIX}{}", std::process::id())
}

pub fn scratch() -> PathBuf {
    std::env::temp_dir().join(name())
}

/// Those of runs that are no more.
pub fn sweep() {
    for path in dead(&std::env::temp_dir()) {
        let _ = std::fs::remove_dir_all(path);
    }
    for path in cgroup::root().iter().flat_map(|root| dead(root)) {
        cgroup::remove(&path);
    }
}

fn dead(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|each| each.path()).filter(|path| is_dead(path)).collect()
}

fn is_dead(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let pid = name.strip_prefix(PREFIX).and_then(|pid| pid.parse::<u32>().ok());
    pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
}
