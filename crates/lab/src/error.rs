//! Errors with files.

use std::io;
use std::path::{Path, PathBuf};

/// The file, the failed action, and the cause.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {}: {source}", path.display())]
pub struct FileError {
    doing: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// Adds the file's path to an error.
pub trait AtPath<T> {
    /// `doing`: the action, without the path, such as `read`.
    fn at(self, doing: &'static str, path: &Path) -> Result<T, FileError>;
}

impl<T, E: Into<io::Error>> AtPath<T> for Result<T, E> {
    fn at(self, doing: &'static str, path: &Path) -> Result<T, FileError> {
        self.map_err(|error| FileError { doing, path: path.into(), source: error.into() })
    }
}
