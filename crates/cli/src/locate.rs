//! Finds the other parts of Sidestep: beside this program, or where packages install them.

use std::io;
use std::path::{Path, PathBuf};

pub const LIBRARY: &str = "libsidestep.so";
pub const DAEMON: &str = "sidestepd";
pub const AGENT: &str = "sidestep-agent";
pub const LAB: &str = "sidestep-lab";
pub const STACK: &str = "sidestep-stack";

/// Overrides the search for the library.
const LIBRARY_VARIABLE: &str = "SIDESTEP_LIBRARY";

/// Why a part of Sidestep was not found.
#[derive(Debug, thiserror::Error)]
pub enum LocateError {
    #[error("{LIBRARY_VARIABLE}={}: no such file", .0.display())]
    NoSuchLibrary(PathBuf),
    #[error("{}", path.display())]
    Resolve { path: PathBuf, source: io::Error },
    #[error("{}: the loader cannot preload a path with a colon or a space; install it elsewhere", .0.display())]
    NotPreloadable(PathBuf),
    #[error("cannot find the path of this program")]
    OwnPlace(#[source] io::Error),
    #[error("{name} is neither in {} nor in {}", beside.display(), lib.display())]
    Nowhere { name: &'static str, beside: PathBuf, lib: PathBuf },
}

/// The absolute path of the library to preload.
pub fn library() -> Result<PathBuf, LocateError> {
    let found = match std::env::var_os(LIBRARY_VARIABLE) {
        Some(path) => {
            let path = PathBuf::from(path);
            if path.is_file() { Ok(path) } else { Err(LocateError::NoSuchLibrary(path)) }
        }
        None => beside_or_in_lib(LIBRARY),
    }?;
    let path = std::fs::canonicalize(&found).map_err(|source| LocateError::Resolve { path: found, source })?;
    // These characters separate names in LD_PRELOAD.
    if path.to_string_lossy().contains([':', ' ']) {
        return Err(LocateError::NotPreloadable(path));
    }
    Ok(path)
}

/// The broker's program.
pub fn daemon() -> Result<PathBuf, LocateError> {
    beside_or_in_lib(DAEMON)
}

/// The program of `sidestep agent`.
pub fn agent() -> Result<PathBuf, LocateError> {
    beside_or_in_lib(AGENT)
}

/// The program of `sidestep stack`.
pub fn stack() -> Result<PathBuf, LocateError> {
    beside_or_in_lib(STACK)
}

/// The program of `sidestep lab`.
pub fn lab() -> Result<PathBuf, LocateError> {
    beside_or_in_lib(LAB)
}

fn beside_or_in_lib(name: &'static str) -> Result<PathBuf, LocateError> {
    let own = std::env::current_exe().map_err(LocateError::OwnPlace)?;
    let beside = own.parent().unwrap_or(Path::new("/")).to_path_buf();
    let lib = beside.join("../lib/sidestep");
    let found = [&beside, &lib].map(|dir| dir.join(name)).into_iter().find(|path| path.is_file());
    found.ok_or(LocateError::Nowhere { name, beside, lib })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_looks_for_a_part_that_is_not_there_is_told_where_it_was_looked_for() {
        let error = beside_or_in_lib("sidestep-of-nobody").expect_err("nobody has it").to_string();
        assert!(error.starts_with("sidestep-of-nobody is neither in /"), "{error}");
        assert!(error.ends_with("/../lib/sidestep"), "{error}");
    }
}
