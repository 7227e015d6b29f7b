//! The program among the runtime's plugins.

use super::chain::TYPE;
use super::error::InstallError;
use super::file;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tempfile::NamedTempFile;

const MODE: u32 = 0o755;
/// Stays this program's file even if that is replaced or removed.
const SELF: &str = "/proc/self/exe";

/// Copies this program there, in place of another version of it. A runtime may run the other version at this moment.
pub fn install(directory: &Path) -> Result<(), InstallError> {
    let target = directory.join(TYPE);
    let mut own = File::open(SELF).map_err(InstallError::Program)?;
    copy(&mut own, directory, &target).map_err(|source| InstallError::Write(target, source))
}

fn copy(own: &mut File, directory: &Path, target: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let mut new = NamedTempFile::new_in(directory)?;
    io::copy(own, &mut new)?;
    new.as_file().set_permissions(Permissions::from_mode(MODE))?;
    sidestep_files::persist(new, target)
}

/// Copies the program again if it is gone.
pub fn restore(directory: &Path) -> Result<(), InstallError> {
    if directory.join(TYPE).exists() { Ok(()) } else { install(directory) }
}

pub fn uninstall(directory: &Path) -> Result<(), InstallError> {
    let target = directory.join(TYPE);
    if file::remove(&target)? {
        println!("{}: removed", target.display());
    }
    Ok(())
}
