//! Where that lies which is under test.

use std::path::{Path, PathBuf};

/// A program of the release build. Programs of the tests lie in `target/debug`, and what is shipped in `target/release`.
pub fn program(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("the path of this program");
    let target = own.parent().and_then(Path::parent).expect("a directory of a profile");
    target.join("release").join(name)
}
