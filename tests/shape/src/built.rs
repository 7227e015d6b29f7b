//! Whether something that cargo builds is there already: to ask cargo for one package is to build what it shares with the others
//! once more, with other features.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Whether the file is newer than all sources of these packages, and of what all have in common.
pub fn is_current(file: &Path, packages: &[&str]) -> bool {
    let Ok(built) = fs::metadata(file).and_then(|found| found.modified()) else { return false };
    let own = packages.iter().map(|name| crate::path("crates").join(name));
    let common = ["Cargo.toml", "Cargo.lock"].map(crate::path);
    own.chain(common).all(|path| newest(&path) < built)
}

fn newest(path: &PathBuf) -> SystemTime {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let below = entries.map(|entry| newest(&entry.path())).max();
    let own = fs::metadata(path).and_then(|found| found.modified()).expect("a source");
    own.max(below.unwrap_or(SystemTime::UNIX_EPOCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_older_than_a_source_is_not_current() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(is_current(file.path(), &["abi", "broker"]));
        file.as_file().set_modified(newest(&crate::path("crates/abi"))).unwrap();
        assert!(!is_current(file.path(), &["abi", "broker"]));
        assert!(!is_current(Path::new("/no/such/file"), &[]));
    }
}
