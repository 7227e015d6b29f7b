//! A private directory for the run, removed at its end.

use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    pub fn new() -> Result<Scratch, String> {
        let template = std::env::temp_dir().join("sidestep-posix-XXXXXX");
        let template = CString::new(template.into_os_string().into_vec()).expect("no NUL in a path");
        let raw = template.into_raw();
        // SAFETY: mkdtemp changes the six X in place; the string is taken back right after.
        let (made, path) = unsafe { (libc::mkdtemp(raw), CString::from_raw(raw)) };
        if made.is_null() {
            return Err(format!("cannot make {path:?}: {}", std::io::Error::last_os_error()));
        }
        Ok(Scratch { path: std::ffi::OsString::from_vec(path.into_bytes()).into() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_dir_all(&self.path) {
            eprintln!("posix-run: cannot remove {}: {e}", self.path.display());
        }
    }
}
