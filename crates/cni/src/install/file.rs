//! Configurations of runtimes: read whole, and replaced with the owner and the permissions that they had.

use super::error::InstallError;
use rustix::fs::{Gid, Uid, fchown};
use std::fs::{File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use tempfile::NamedTempFile;

/// Far more than a network configuration has.
const LONGEST: u64 = 1 << 20;
/// Of a file that was not there before.
const MODE: u32 = 0o600;

/// The text of a regular file, also through links.
pub fn read(path: &Path) -> Result<String, InstallError> {
    let cannot = |source| InstallError::Read(path.into(), source);
    if !std::fs::metadata(path).map_err(|source| cannot(of_link(path, source)))?.is_file() {
        return Err(cannot(io::Error::other("not a regular file")));
    }
    let mut text = String::new();
    File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_string(&mut text)).map_err(cannot)?;
    if text.len() as u64 > LONGEST {
        return Err(cannot(io::ErrorKind::FileTooLarge.into()));
    }
    Ok(text)
}

/// The error, and for a link what it leads to.
fn of_link(path: &Path, source: io::Error) -> io::Error {
    let Ok(target) = std::fs::read_link(path) else { return source };
    let target = target.display();
    io::Error::new(source.kind(), format!("{source}: it is a link to {target}, make it a relative one or a file"))
}

/// Writes the file with the owner and the permissions of the file `like`, which may be itself. A link stays a link.
pub fn replace(path: &Path, like: &Path, text: &str) -> Result<(), InstallError> {
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.into());
    try_replace(&target, like, text).map_err(|source| InstallError::Write(path.into(), source))
}

fn try_replace(path: &Path, like: &Path, text: &str) -> io::Result<()> {
    let mut new = NamedTempFile::new_in(sidestep_files::directory(path))?;
    match std::fs::metadata(like) {
        Ok(old) => {
            // The owner last: to change what is another user's takes one right more.
            new.as_file().set_permissions(Permissions::from_mode(old.mode() & 0o7777))?;
            fchown(new.as_file(), Some(Uid::from_raw(old.uid())), Some(Gid::from_raw(old.gid())))?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            new.as_file().set_permissions(Permissions::from_mode(MODE))?;
        }
        Err(error) => return Err(error),
    }
    new.write_all(text.as_bytes())?;
    sidestep_files::persist(new, path)
}

pub fn rename(from: &Path, to: &Path) -> Result<(), InstallError> {
    sidestep_files::rename(from, to).map_err(|source| InstallError::Rename(from.into(), source))
}

/// Returns whether it was there.
pub fn remove(path: &Path) -> Result<bool, InstallError> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(InstallError::Remove(path.into(), error)),
    }
}
