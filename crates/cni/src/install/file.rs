//! Files that are replaced by renaming: no reader sees a part of them, and a machine that fails has the old or the new one.

use super::error::InstallError;
use rustix::fs::{Gid, Uid, fchown};
use std::fs::{File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Far more than a network configuration has.
const LONGEST: u64 = 1 << 20;
/// Of a file that was not there before.
const MODE: u32 = 0o600;

/// The text of a regular file, also through links.
pub fn read(path: &Path) -> Result<String, InstallError> {
    let cannot = |source| InstallError::Read(path.into(), source);
    if !std::fs::metadata(path).map_err(cannot)?.is_file() {
        return Err(cannot(io::Error::other("not a regular file")));
    }
    let mut text = String::new();
    File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_string(&mut text)).map_err(cannot)?;
    if text.len() as u64 > LONGEST {
        return Err(cannot(io::ErrorKind::FileTooLarge.into()));
    }
    Ok(text)
}

/// Writes the file with the owner and the permissions of the file `like`, which may be itself. A link stays a link.
pub fn replace(path: &Path, like: &Path, text: &str) -> Result<(), InstallError> {
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.into());
    try_replace(&target, like, text).map_err(|source| InstallError::Write(path.into(), source))
}

fn try_replace(path: &Path, like: &Path, text: &str) -> io::Result<()> {
    let mut new = NamedTempFile::new_in(directory(path))?;
    match std::fs::metadata(like) {
        Ok(old) => {
            fchown(new.as_file(), Some(Uid::from_raw(old.uid())), Some(Gid::from_raw(old.gid())))?;
            new.as_file().set_permissions(Permissions::from_mode(old.mode() & 0o7777))?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            new.as_file().set_permissions(Permissions::from_mode(MODE))?;
        }
        Err(error) => return Err(error),
    }
    new.write_all(text.as_bytes())?;
    persist(new, path)
}

/// Gives a finished file its name.
pub fn persist(new: NamedTempFile, path: &Path) -> io::Result<()> {
    new.as_file().sync_all()?;
    new.persist(path)?;
    File::open(directory(path))?.sync_all()
}

pub fn rename(from: &Path, to: &Path) -> Result<(), InstallError> {
    let renamed = std::fs::rename(from, to).and_then(|()| File::open(directory(to))?.sync_all());
    renamed.map_err(|source| InstallError::Rename(from.into(), source))
}

/// Returns whether it was there.
pub fn remove(path: &Path) -> Result<bool, InstallError> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(InstallError::Remove(path.into(), error)),
    }
}

fn directory(path: &Path) -> PathBuf {
    path.parent().map_or_else(|| ".".into(), Path::to_path_buf)
}
