//! The versions of the library on a node.
//!
//! ```text
//! /usr/lib/sidestep/0.1.0-3f2a90c1d5e6/libsidestep.so     never changed, removed when nobody has it any more
//! /usr/lib/sidestep/current -> 0.1.0-3f2a90c1d5e6         what new containers get
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

use sidestep_injection::CURRENT;
use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Beginning of the names of directories that are not versions yet.
const TEMPORARY: &str = ".new-";
/// Digits of a version's hash that are in its name.
const DIGITS: usize = 12;

/// The directory of the version that new containers get.
pub fn current(store: &Path) -> Option<PathBuf> {
    let version = store.join(current_name(store)?);
    version.join(LIBRARY).is_file().then_some(version)
}

/// One installation or collection at a time, for as long as the file is open.
fn lock(store: &Path) -> io::Result<File> {
    let directory = File::open(store)?;
    directory.lock()?;
    Ok(directory)
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
