//! A private directory for the run, removed at its end unless it is to be kept.

use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// It exists as long as this value, or longer.
pub struct Scratch {
    path: PathBuf,
    /// Whether it stays.
    keep: bool,
}

impl Scratch {
    /// `keep`: it stays.
    pub fn new(keep: bool) -> Result<Scratch, String> {
        let template = std::env::temp_dir().join("sidestep-posix-XXXXXX");
        let template = CString::new(template.into_os_string().into_vec()).expect("no NUL in a path");
        let raw = template.into_raw();
        // SAFETY: mkdtemp changes the six X in place; the string is taken back right after.
        let (made, path) = unsafe { (libc::mkdtemp(raw), CString::from_raw(raw)) };
        if made.is_null() {
            return Err(format!("cannot make {path:?}: {}", std::io::Error::last_os_error()));
        }
        Ok(Scratch { path: std::ffi::OsString::from_vec(path.into_bytes()).into(), keep })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.keep {
            return eprintln!("posix-run: {} is kept", self.path.display());
        }
        if let Err(e) = std::fs::remove_dir_all(&self.path) {
            eprintln!("posix-run: cannot remove {}: {e}", self.path.display());
        }
    }
}
