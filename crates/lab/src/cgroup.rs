//! A cgroup v2 directory of the lab's own.

use crate::error::{AtPath, FileError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub struct Cgroup(PathBuf);

/// The mount point of cgroup v2, alone or beside version 1.
pub fn root() -> Option<PathBuf> {
    ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
        .map(PathBuf::from)
        .into_iter()
        .find(|path| path.join("cgroup.controllers").exists())
}

/// A killed process leaves its cgroup a moment after the kill.
const EMPTY_LIMIT: Duration = Duration::from_secs(5);

impl Cgroup {
    pub fn new(path: &Path) -> Result<Cgroup, FileError> {
        std::fs::create_dir(path).at("make the cgroup", path)?;
        Ok(Cgroup(path.into()))
    }

    /// An existing one.
    pub fn at(path: &Path) -> Cgroup {
        Cgroup(path.into())
    }

    pub fn child(&self, name: &str) -> Result<Cgroup, FileError> {
        Cgroup::new(&self.0.join(name))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Kills its processes, and removes it.
    pub fn remove(self) {
        remove(&self.0);
    }
}

/// Removes the cgroup with those below it. What cannot be removed is left to the next run's sweep.
pub fn remove(path: &Path) {
    let _ = std::fs::write(path.join("cgroup.kill"), "1");
    let until = Instant::now() + EMPTY_LIMIT;
    while !remove_empty(path) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn remove_empty(path: &Path) -> bool {
    for child in std::fs::read_dir(path).into_iter().flatten().flatten() {
        if child.path().is_dir() {
            remove_empty(&child.path());
        }
    }
    std::fs::remove_dir(path).is_ok() || !path.exists()
}
