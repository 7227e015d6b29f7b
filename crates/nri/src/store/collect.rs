//! Removes versions that nobody has.

use super::use_of::{Sought, UseError};
use super::{CURRENT, TEMPORARY, current_name, is_version, lock};
use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// What [`collect`] has done, by names.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Versions, and remains of installations, that are gone.
    pub removed: Vec<String>,
    /// Versions that stay since a process has them.
    pub used: Vec<String>,
    /// Versions that stay since a container that is being created may have them.
    pub recent: Vec<String>,
}

/// Why versions cannot be removed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // Their messages say it.
pub enum CollectError {
    #[error("{path}: cannot read the installed versions", path = .path.display())]
    List { path: PathBuf, source: io::Error },
    #[error("{path}: names no version; sidestep-nri install makes it", path = .path.display())]
    NoCurrent { path: PathBuf },
    #[error(transparent)]
    Use(#[from] UseError),
    #[error("{path}: cannot remove it", path = .path.display())]
    Remove { path: PathBuf, source: io::Error },
}

/// Removes the versions of a store that are not current, and that no process has. A version that was current within the time
/// `keep` stays: a container that was to have it may not have been started yet.
pub fn collect(store: &Path, keep: Duration, proc: &Path) -> Result<Collected, CollectError> {
    let failed = |source| CollectError::List { path: store.to_owned(), source };
    let _lock = lock(store).map_err(failed)?;
    let link = store.join(CURRENT);
    let current = current_name(store).ok_or_else(|| CollectError::NoCurrent { path: link.clone() })?;
    let has_stood = age(link.symlink_metadata().and_then(|meta| meta.modified()).map_err(failed)?) >= keep;
    let mut collected = Collected::default();
    let mut versions = Vec::new();
    for entry in fs::read_dir(store).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(TEMPORARY) && is_old(&entry, keep) {
            remove(store, name, &mut collected)?;
        } else if is_version(&name) && Path::new(&name) != current {
            versions.push(name);
        }
    }
    if !has_stood {
        collected.recent = versions;
        return Ok(collected);
    }
    let sought = Sought::new(store, versions.clone());
    collected.used = sought.used(proc)?;
    for name in versions {
        if !collected.used.contains(&name) {
            remove(store, name, &mut collected)?;
        }
    }
    Ok(collected)
}

fn remove(store: &Path, name: String, collected: &mut Collected) -> Result<(), CollectError> {
    let path = store.join(&name);
    fs::remove_dir_all(&path).map_err(|source| CollectError::Remove { path, source })?;
    collected.removed.push(name);
    Ok(())
}

/// What an installation that was killed has left; one that runs is younger.
fn is_old(entry: &DirEntry, keep: Duration) -> bool {
    entry.metadata().and_then(|meta| meta.modified()).is_ok_and(|time| age(time) >= keep)
}

/// Nothing, for a time in the future.
fn age(time: SystemTime) -> Duration {
    SystemTime::now().duration_since(time).unwrap_or_default()
}
