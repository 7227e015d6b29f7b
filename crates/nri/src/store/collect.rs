//! Removes versions that nobody has.

use super::use_of::{Sought, UseError};
use super::{CURRENT, LOCK, TEMPORARY, current_name, is_version, lock};
use std::fs::{self, DirBuilder, DirEntry};
use std::io;
use std::os::unix::fs::DirBuilderExt;
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
    #[error("{path}: cannot put an empty directory in its place", path = .path.display())]
    Stand { path: PathBuf, source: io::Error },
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
    let mut versions = versions(store, keep, &mut collected)?;
    versions.retain(|name| Path::new(name) != current);
    if has_stood {
        remove_unused(store, versions, proc, &mut collected)?;
    } else {
        collected.recent = versions;
    }
    Ok(collected)
}

/// Removes everything of a store that no process has: new containers get no library from now on. A container that was created a
/// moment ago may fail to start once.
pub fn collect_all(store: &Path, proc: &Path) -> Result<Collected, CollectError> {
    let _lock = lock(store).map_err(|source| CollectError::List { path: store.to_owned(), source })?;
    let mut collected = Collected::default();
    let link = store.join(CURRENT);
    // The runtime makes an empty directory in the link's place, for a container that is to have the version as a volume.
    let is_directory = link.symlink_metadata().is_ok_and(|meta| meta.is_dir());
    match if is_directory { fs::remove_dir(&link) } else { fs::remove_file(&link) } {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            return Err(CollectError::Remove { path: link, source });
        }
        _ => {}
    }
    let versions = versions(store, Duration::ZERO, &mut collected)?;
    remove_unused(store, versions, proc, &mut collected)?;
    if !collected.used.is_empty() {
        // Pods that have one as a volume ask for the link when their node starts again, and would never start.
        let failed = |source| CollectError::Stand { path: link.clone(), source };
        DirBuilder::new().mode(0o755).create(&link).map_err(failed)?;
    }
    match fs::remove_file(store.join(LOCK)).and_then(|()| fs::remove_dir(store)) {
        Err(source) if !may_stay(&source) => Err(CollectError::Remove { path: store.to_owned(), source }),
        _ => Ok(collected),
    }
}

/// Something in the directory is in use or is not ours; or the directory is a mount point, as in a container, whose root may be
/// read-only.
fn may_stay(error: &io::Error) -> bool {
    use io::ErrorKind::{DirectoryNotEmpty, ReadOnlyFilesystem, ResourceBusy};
    matches!(error.kind(), DirectoryNotEmpty | ReadOnlyFilesystem | ResourceBusy)
}

/// The names of all versions. What a killed installation has left longer ago than `keep` is removed.
fn versions(store: &Path, keep: Duration, collected: &mut Collected) -> Result<Vec<String>, CollectError> {
    let failed = |source| CollectError::List { path: store.to_owned(), source };
    let mut versions = Vec::new();
    for entry in fs::read_dir(store).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(TEMPORARY) && is_old(&entry, keep) {
            remove(store, name, collected)?;
        } else if is_version(&name) {
            versions.push(name);
        }
    }
    Ok(versions)
}

fn remove_unused(
    store: &Path,
    versions: Vec<String>,
    proc: &Path,
    collected: &mut Collected,
) -> Result<(), CollectError> {
    collected.used = Sought::new(store, versions.clone()).used(proc)?;
    for name in versions {
        if !collected.used.contains(&name) {
            remove(store, name, collected)?;
        }
    }
    Ok(())
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
