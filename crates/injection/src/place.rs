//! Names of files and directories, which are the same on the node and in containers.

use std::path::PathBuf;

/// The library's file.
pub const LIBRARY: &str = "libsidestep.so";
/// The link, in the directory with the versions of the library, to the one that new containers get.
pub const CURRENT: &str = "current";

/// A name that cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // Their messages say it.
pub enum PlaceError {
    #[error("write an absolute path without `..`, colons, blanks and `$`")]
    Directory,
    #[error("write a file's name")]
    Name,
}

/// A directory that has the same path in containers, and that LD_PRELOAD can name: a colon or a blank ends a name there, and loaders
/// and kubelets replace what follows a `$`.
pub fn directory(text: &str) -> Result<PathBuf, PlaceError> {
    let is_plain = text.starts_with('/')
        && text.len() > 1
        && !text.contains(|c: char| matches!(c, ':' | '$') || c.is_whitespace() || c.is_control())
        && !text.split('/').any(|part| part == "..");
    // Without a slash at the end, and without `.`.
    is_plain.then(|| PathBuf::from(text).components().collect()).ok_or(PlaceError::Directory)
}

/// The name of a file in a directory.
pub fn file_name(text: &str) -> Result<String, PlaceError> {
    let is_name = !text.is_empty() && !text.contains('/') && text != "." && text != "..";
    is_name.then(|| text.to_owned()).ok_or(PlaceError::Name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_mounted_and_preloaded_is_a_directory() {
        assert_eq!(directory("/usr/lib/./sidestep/").expect("a path"), PathBuf::from("/usr/lib/sidestep"));
        for bad in ["", "/", "usr", "/a:b", "/a b", "/a\n", "/a/../b", "/$LIB", "/a$(B)"] {
            assert!(directory(bad).is_err(), "{bad:?}");
        }
    }
}
