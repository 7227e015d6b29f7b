//! The versions of the library on a node.
//!
//! ```text
//! /usr/lib/sidestep/0.1.0-3f2a90c1d5e6/libsidestep.so     never changed, removed when nobody has it any more
//! /usr/lib/sidestep/current -> 0.1.0-3f2a90c1d5e6         what new containers get
//! /usr/lib/sidestep/.lock                                 held by an installation or collection
//! ```
//!
//! A library that is overwritten in place kills every process that has mapped it. So a version is a directory, which appears
//! by rename(2) with everything in it.

mod collect;
mod install;
mod use_of;

pub use collect::{CollectError, Collected, collect, collect_all};
pub use install::{InstallError, install};
pub use sidestep_injection::LIBRARY;
pub use use_of::UseError;

use rustix::fs::{Mode, OFlags};
use sidestep_injection::CURRENT;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

/// Beginning of the names of directories that are not versions yet.
const TEMPORARY: &str = ".new-";
/// The file that an installation or a collection locks. Only its owner can open it, while every user could lock the directory.
const LOCK: &str = ".lock";
/// Longest wait for another installation or collection, which takes seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two tries meanwhile.
const PAUSE: Duration = Duration::from_millis(20);
/// Digits of a version's hash that are in its name.
const DIGITS: usize = 12;

/// The directory of the version that new containers get.
pub fn current(store: &Path) -> Option<PathBuf> {
    let version = store.join(current_name(store)?);
    version.join(LIBRARY).is_file().then_some(version)
}

/// One installation or collection at a time, for as long as the file is open.
fn lock(store: &Path) -> io::Result<File> {
    let (path, until) = (store.join(LOCK), Instant::now() + PATIENCE);
    loop {
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?);
        match file.try_lock() {
            Ok(()) if is_at(&file, &path)? => return Ok(file),
            // A collection has removed the file meanwhile.
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        if Instant::now() >= until {
            let held = format!("{}: another sidestep-nri has held it for {} s", path.display(), PATIENCE.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, held));
        }
    }
}

/// Whether the path still leads to this file.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match path.symlink_metadata() {
        Ok(there) => Ok((there.dev(), there.ino()) == (ours.dev(), ours.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The name of that version: a link that leads elsewhere names none.
fn current_name(store: &Path) -> Option<PathBuf> {
    let target = std::fs::read_link(store.join(CURRENT)).ok()?;
    let mut components = target.components();
    let is_name = matches!((components.next(), components.next()), (Some(Component::Normal(_)), None));
    is_name.then_some(target)
}

/// Whether this is the name of a version: `0.1.0-3f2a90c1d5e6`.
fn is_version(name: &str) -> bool {
    name.rsplit_once('-').is_some_and(|(release, hash)| {
        !release.is_empty()
            && !release.starts_with('.')
            && hash.len() == DIGITS
            && hash.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
    })
}
