//! What went wrong, where, and what to do about it.

use std::fmt;
use std::path::Path;

/// An error with what was being done.
#[derive(Debug)]
pub struct Error {
    pub doing: String,
    pub cause: String,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// libbpf's errors tell their own cause, the kernel's, only in the alternate form.
    pub fn new(doing: impl Into<String>, cause: impl fmt::Display) -> Error {
        Error { doing: doing.into(), cause: format!("{cause:#}") }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}: {}", self.doing, self.cause)
    }
}

impl std::error::Error for Error {}

/// Says what was being done when it went wrong.
pub trait Doing<T> {
    fn doing(self, what: impl Into<String>) -> Result<T>;
    fn at(self, what: &str, path: &Path) -> Result<T>;
}

impl<T, E: fmt::Display> Doing<T> for std::result::Result<T, E> {
    fn doing(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|error| Error::new(what, error))
    }

    fn at(self, what: &str, path: &Path) -> Result<T> {
        self.map_err(|error| Error::new(format!("{what} {}", path.display()), error))
    }
}
