//! Paths of the programs under test.

use std::path::{Path, PathBuf};

/// A program of the same build as this one.
pub fn beside(name: &str) -> PathBuf {
    std::env::current_exe().expect("the path of this program").with_file_name(name)
}

/// A program of the release build. Test programs are in `target/debug`, the programs under test in `target/release`.
pub fn program(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("the path of this program");
    let target = own.parent().and_then(Path::parent).expect("a directory of a profile");
    target.join("release").join(name)
}
