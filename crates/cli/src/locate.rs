//! Where the other parts of Sidestep are: beside this program, or where packages put them.

use std::path::{Path, PathBuf};

pub const LIBRARY: &str = "libsidestep.so";
pub const DAEMON: &str = "sidestepd";
pub const AGENT: &str = "sidestep-agent";
pub const LAB: &str = "sidestep-lab";

/// Overrides the search for the library.
const LIBRARY_VARIABLE: &str = "SIDESTEP_LIBRARY";

/// The library to preload, as an absolute path.
pub fn library() -> Result<PathBuf, String> {
    let found = match std::env::var_os(LIBRARY_VARIABLE) {
        Some(path) => {
            let path = PathBuf::from(path);
            if path.is_file() { Ok(path) } else { Err(format!("{LIBRARY_VARIABLE}={}: no such file", path.display())) }
        }
        None => beside_or_in_lib(LIBRARY),
    }?;
    let path = std::fs::canonicalize(&found).map_err(|e| format!("{}: {e}", found.display()))?;
    let text = path.to_string_lossy();
    // The dynamic loader separates the names in LD_PRELOAD by these.
    if text.contains([':', ' ']) {
        return Err(format!("{text}: the loader cannot preload a path with a colon or a space; install it elsewhere"));
    }
    Ok(path)
}

/// The broker's program.
pub fn daemon() -> Result<PathBuf, String> {
    beside_or_in_lib(DAEMON)
}

/// The program of `sidestep agent`.
pub fn agent() -> Result<PathBuf, String> {
    beside_or_in_lib(AGENT)
}

/// The program of `sidestep lab`.
pub fn lab() -> Result<PathBuf, String> {
    beside_or_in_lib(LAB)
}

fn beside_or_in_lib(name: &str) -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|e| format!("cannot find out where this program lies: {e}"))?;
    let dir = own.parent().unwrap_or(Path::new("/"));
    let places = [dir.join(name), dir.join("../lib/sidestep").join(name)];
    places.iter().find(|path| path.is_file()).cloned().ok_or_else(|| {
        format!("{name} is neither in {} nor in {}", dir.display(), dir.join("../lib/sidestep").display())
    })
}
