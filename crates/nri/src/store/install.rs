//! Puts a version in place.

use super::{CURRENT, DIGITS, LIBRARY, TEMPORARY, current_name, lock};
use sha2::{Digest, Sha256};
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Most bytes of a library; ours has half a megabyte.
const LARGEST: u64 = 64 << 20;

/// Why a version cannot be installed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // Their messages say it.
pub enum InstallError {
    #[error("{path}: cannot read the library", path = .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{path}: more than {LARGEST} bytes are no library of Sidestep", path = .path.display())]
    TooLarge { path: PathBuf },
    #[error("{path}: cannot write the new version", path = .path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("{path}: was changed after its installation; remove that directory when no process uses it", path = .path.display())]
    Changed { path: PathBuf },
}

/// Installs the library of the directory `from` below `to`, and makes it the version that new containers get. What is there
/// already is left as it is.
pub fn install(from: &Path, to: &Path) -> Result<PathBuf, InstallError> {
    let content = content(&from.join(LIBRARY))?;
    let version = to.join(name(&content));
    let failed = |source| InstallError::Write { path: to.to_owned(), source };
    fs::create_dir_all(to).map_err(failed)?;
    let _lock = lock(to).map_err(failed)?;
    // A collection that was killed leaves the directory without the library; the new version takes its place.
    if !version.join(LIBRARY).exists() {
        put(&content, to, &version).map_err(failed)?;
    }
    if self::content(&version.join(LIBRARY))? != content {
        return Err(InstallError::Changed { path: version });
    }
    point_to(&version, to).map_err(failed)?;
    Ok(version)
}

/// The content of a library.
fn content(path: &Path) -> Result<Vec<u8>, InstallError> {
    let failed = |source| InstallError::Read { path: path.to_owned(), source };
    let mut content = Vec::new();
    File::open(path).map_err(failed)?.take(LARGEST + 1).read_to_end(&mut content).map_err(failed)?;
    if content.len() as u64 > LARGEST {
        return Err(InstallError::TooLarge { path: path.to_owned() });
    }
    Ok(content)
}

/// A version's name: the release, and what distinguishes two builds of it.
fn name(content: &[u8]) -> String {
    let digits: String = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}", env!("CARGO_PKG_VERSION"), &digits[..DIGITS])
}

/// Everything is on disk before the version has its name.
fn put(content: &[u8], to: &Path, version: &Path) -> io::Result<()> {
    let temporary = tempfile::Builder::new().prefix(TEMPORARY).tempdir_in(to)?;
    let mut library = File::create_new(temporary.path().join(LIBRARY))?;
    library.write_all(content)?;
    library.set_permissions(Permissions::from_mode(0o755))?;
    library.sync_all()?;
    fs::set_permissions(temporary.path(), Permissions::from_mode(0o755))?;
    File::open(temporary.path())?.sync_all()?;
    sidestep_files::rename(&temporary.keep(), version)
}

/// The link changes only if it has to: its age says since when older versions get no new containers.
fn point_to(version: &Path, to: &Path) -> io::Result<()> {
    let name = version.file_name().map(PathBuf::from);
    if name == current_name(to) {
        return Ok(());
    }
    let temporary = tempfile::Builder::new().prefix(TEMPORARY).tempdir_in(to)?;
    let link = temporary.path().join(CURRENT);
    symlink(name.unwrap_or_default(), &link)?;
    let current = to.join(CURRENT);
    // Runtimes make an empty directory of what a container is to mount and is not there: one that was restarted after a removal.
    if current.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
        fs::remove_dir(&current)?;
    }
    sidestep_files::rename(&link, &current)
}
