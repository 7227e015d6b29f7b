//! The directory in a BPF file system that keeps programs and maps while no process runs.

use crate::error::{Doing, Error, Result};
use rustix::fs::statfs;
use rustix::mount::{MountFlags, mount};
use rustix::process::geteuid;
use std::fs::{DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The usual mount point, also systemd's.
pub const BPFFS: &str = "/sys/fs/bpf";
/// `f_type` in statfs(2).
const BPF_FS_MAGIC: u64 = 0xcafe_4a11;

/// A directory for pins that belong together.
#[derive(Clone, Debug)]
pub struct Pins {
    directory: PathBuf,
}

/// Why a directory cannot hold pins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// It is in another file system.
    #[error("is not in a BPF file system (mount -t bpf bpf DIRECTORY)")]
    NoBpffs,
    /// Another kind of file has its name.
    #[error("is not a directory: remove it")]
    NoDirectory,
    /// It belongs to another user (the uid).
    #[error("belongs to user {0}, not to this one: remove it, or choose another place")]
    Of(u32),
    /// Other users may write to it.
    #[error("can be written by other users: check what they have put there, and then `chmod go-w` it")]
    Writable,
}

impl Pins {
    /// Checks `directory`, which must be in a BPF file system. Mounts [`BPFFS`] if that is not mounted; other mount points must
    /// exist. No other user may write there: whoever can write there can replace our tables.
    pub fn new(directory: &Path) -> Result<Pins> {
        if directory.starts_with(BPFFS) && !is_bpffs(Path::new(BPFFS)) {
            let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
            mount("bpf", BPFFS, "bpf", flags, c"mode=0700").at("mount a BPF file system at", Path::new(BPFFS))?;
        }
        let pins = Pins { directory: directory.into() };
        let existing = directory.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
        if !is_bpffs(existing) {
            return Err(Error::new(directory.display().to_string(), Unfit::NoBpffs));
        }
        pins.check()?;
        Ok(pins)
    }

    /// Every existing directory from the BPF file system down to this one must be writable by us alone. In a sticky directory, as
    /// some mount it, other users cannot replace our files.
    fn check(&self) -> Result<()> {
        for path in self.directory.ancestors().filter(|path| path.symlink_metadata().is_ok()) {
            if !is_bpffs(path) {
                break;
            }
            let found = path.symlink_metadata().at("look at", path)?;
            let is_last = path == self.directory;
            let may_be_shared = !is_last && found.mode() & STICKY != 0;
            let wrong = match found.mode() & OF_OTHERS {
                _ if !found.is_dir() => Unfit::NoDirectory,
                _ if found.uid() != geteuid().as_raw() => Unfit::Of(found.uid()),
                writable if writable != 0 && !may_be_shared => Unfit::Writable,
                _ => continue,
            };
            return Err(Error::new(path.display().to_string(), wrong));
        }
        Ok(())
    }

    /// Creates the directory and its parents.
    pub fn create(&self) -> Result<()> {
        create(&self.directory)?;
        // Earlier versions created it readable by others.
        fs::set_permissions(&self.directory, Permissions::from_mode(OURS)).at("change the mode of", &self.directory)
    }

    /// The path with these parts.
    pub fn path(&self, parts: &[&str]) -> PathBuf {
        self.directory.join(parts.iter().collect::<PathBuf>())
    }

    /// Creates the directory with this path and its parents.
    pub fn make(&self, parts: &[&str]) -> Result<PathBuf> {
        let path = self.path(parts);
        self.create()?;
        create(&path)?;
        Ok(path)
    }

    /// Removes the file or directory with everything in it, and with that what the pins kept alive.
    pub fn remove(&self, parts: &[&str]) -> Result<()> {
        let path = self.path(parts);
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).at("remove", &path),
            _ => Ok(()),
        }
    }

    /// The names in the directory with this path.
    pub fn names(&self, parts: &[&str]) -> Vec<String> {
        let entries = fs::read_dir(self.path(parts)).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }
}

const OURS: u32 = 0o700;
const STICKY: u32 = 0o1000;
/// Write permission for others.
const OF_OTHERS: u32 = 0o022;

fn create(path: &Path) -> Result<()> {
    DirBuilder::new().recursive(true).mode(OURS).create(path).at("create", path)
}

fn is_bpffs(path: &Path) -> bool {
    statfs(path).is_ok_and(|found| found.f_type as u64 == BPF_FS_MAGIC)
}
