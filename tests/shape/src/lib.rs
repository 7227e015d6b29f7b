//! What the tests of `tests/` look at: the table of intercepted calls, the built library, the packages.
#![forbid(unsafe_code)]

pub mod built;
pub mod c;
pub mod library;
pub mod modules;
pub mod packages;
pub mod rust;
pub mod table;

use std::path::PathBuf;

/// A file of the repository.
pub fn path(relative: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(relative)
}

/// Its text.
pub fn text(relative: &str) -> String {
    std::fs::read_to_string(path(relative)).unwrap_or_else(|e| panic!("{relative}: {e}"))
}
