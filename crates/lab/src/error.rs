//! What could not be done with a file.

use std::io;
use std::path::{Path, PathBuf};

/// The file, what was to be done with it, and why that was not possible.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {}: {source}", path.display())]
pub struct FileError {
    doing: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// Names the file in the error of a call.
pub trait AtPath<T> {
    /// `doing`: up to the path, as in `read`.
    fn at(self, doing: &'static str, path: &Path) -> Result<T, FileError>;
}

impl<T, E: Into<io::Error>> AtPath<T> for Result<T, E> {
    fn at(self, doing: &'static str, path: &Path) -> Result<T, FileError> {
        self.map_err(|error| FileError { doing, path: path.into(), source: error.into() })
    }
}
