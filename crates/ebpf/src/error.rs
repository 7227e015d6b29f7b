//! The error type: what was being done, with which file, and the cause.

use std::error::Error as StdError;
use std::path::{Path, PathBuf};

/// The cause of an error: the kernel's or libbpf's error, or one of the module that found it.
pub type Cause = Box<dyn StdError + Send + Sync>;

/// What was being done, and with which file. The cause is the source.
#[derive(Debug, thiserror::Error)]
#[error("{doing}{}", named(path.as_deref()))]
pub struct Error {
    doing: String,
    path: Option<PathBuf>,
    source: Cause,
}

/// A result with an [`Error`] of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// `doing`: what was being done, such as `map services: look up`.
    pub fn new(doing: impl Into<String>, source: impl Into<Cause>) -> Error {
        Error { doing: doing.into(), path: None, source: source.into() }
    }

    /// `doing`: what was being done, without the path, such as `open`.
    pub fn at(doing: &str, path: &Path, source: impl Into<Cause>) -> Error {
        Error { doing: doing.into(), path: Some(path.into()), source: source.into() }
    }

    /// Replaces the path `held` in the error by `name`, under which users know the file.
    pub fn known_as(mut self, held: &Path, name: &Path) -> Error {
        if self.path.as_deref() == Some(held) {
            self.path = Some(name.into());
        }
        self
    }
}

fn named(path: Option<&Path>) -> String {
    path.map_or_else(String::new, |path| format!(" {}", path.display()))
}

/// Adds to an error what was being done.
pub trait Doing<T> {
    /// `what`: what was being done.
    fn doing(self, what: impl Into<String>) -> Result<T>;
    /// `what`: what was being done, without the path, such as `open`.
    fn at(self, what: &str, path: &Path) -> Result<T>;
}

impl<T, E: Into<Cause>> Doing<T> for std::result::Result<T, E> {
    fn doing(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|error| Error::new(what, error))
    }

    fn at(self, what: &str, path: &Path) -> Result<T> {
        self.map_err(|error| Error::at(what, path, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidestep_error::chain;
    use std::io;

    #[test]
    fn an_error_says_what_was_done_and_with_what_and_has_the_kernels_as_its_source() {
        let denied = || io::Error::from_raw_os_error(13);
        let error = Error::at("enter", Path::new("/run/netns/web"), denied());
        assert_eq!(error.to_string(), "enter /run/netns/web");
        assert_eq!(chain(&error).to_string(), "enter /run/netns/web: Permission denied (os error 13)");
        let outer = Error::new("look at a pod", error);
        let expected = "look at a pod: enter /run/netns/web: Permission denied (os error 13)";
        assert_eq!(chain(&outer).to_string(), expected);
    }

    #[test]
    fn what_an_error_quotes_is_told_once() {
        let inner = Error::new("open", io::Error::from_raw_os_error(2));
        assert_eq!(chain(&io::Error::other(inner)).to_string(), "open: No such file or directory (os error 2)");
    }

    #[test]
    fn a_file_that_is_held_is_told_by_the_name_that_people_know() {
        let (held, name) = (Path::new("/proc/self/fd/7"), Path::new("/run/netns/web"));
        let error = |path| Error::at("enter", path, io::Error::from_raw_os_error(13)).known_as(held, name);
        assert_eq!(error(held).to_string(), "enter /run/netns/web");
        assert_eq!(error(Path::new("/proc/self/fd/70")).to_string(), "enter /proc/self/fd/70");
    }
}
