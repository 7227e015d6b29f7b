//! Files that are replaced by renaming: no reader sees a part of them, and a machine that fails has the old or the new one.

#![forbid(unsafe_code)]

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tempfile::NamedTempFile;

/// Writes the file, in place of the one that has its name. Meanwhile the new one is a hidden file beside it, of this user only.
pub fn write(path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    let mut new = NamedTempFile::new_in(directory(path))?;
    new.write_all(content)?;
    new.as_file().set_permissions(Permissions::from_mode(mode))?;
    persist(new, path)
}

/// Gives a finished file its name. It has to be in the directory of that name.
pub fn persist(new: NamedTempFile, path: &Path) -> io::Result<()> {
    new.as_file().sync_all()?;
    new.persist(path)?;
    sync(directory(path))
}

/// Gives a file, a link or a directory that is on disk its last name.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::rename(from, to)?;
    sync(directory(to))
}

/// The directory of a path: the working directory, if the path names none.
pub fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Names are on disk when their directory is.
fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{metadata, read_dir, read_to_string};
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_file_is_replaced_by_another_one() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("names");
        write(&path, 0o600, b"first").unwrap();
        let first = File::open(&path).unwrap();
        write(&path, 0o644, b"second").unwrap();
        assert_eq!(
            (read_to_string(&path).unwrap(), io::read_to_string(first).unwrap()),
            ("second".into(), "first".into())
        );
        assert_eq!(metadata(&path).unwrap().mode() & 0o7777, 0o644, "whatever the umask");
        assert_eq!(read_dir(place.path()).unwrap().count(), 1);
    }

    #[test]
    fn nothing_is_left_of_a_failure() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("names");
        std::fs::create_dir(&path).unwrap();
        write(&path, 0o600, b"x").unwrap_err();
        assert_eq!(read_dir(place.path()).unwrap().count(), 1);
        write(&place.path().join("none/names"), 0o600, b"x").unwrap_err();
    }

    #[test]
    fn a_name_alone_is_in_the_working_directory() {
        assert_eq!(directory(Path::new("names")), Path::new("."));
        assert_eq!(directory(Path::new("/run/names")), Path::new("/run"));
    }
}
