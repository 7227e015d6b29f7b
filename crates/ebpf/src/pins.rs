//! Where programs and maps are kept when nobody runs: a directory of a BPF file system.

use crate::error::{Doing, Error, Result};
use rustix::fs::statfs;
use rustix::mount::{MountFlags, mount};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Where systemd and everybody else have it.
pub const BPFFS: &str = "/sys/fs/bpf";
/// In statfs(2).
const BPF_FS_MAGIC: u64 = 0xcafe_4a11;

/// A directory for what belongs together.
#[derive(Clone, Debug)]
pub struct Pins {
    directory: PathBuf,
}

impl Pins {
    /// `directory` lies in a BPF file system. [`BPFFS`] is mounted if nobody has done so; other places must be there.
    pub fn new(directory: &Path) -> Result<Pins> {
        if directory.starts_with(BPFFS) && !is_bpffs(Path::new(BPFFS)) {
            mount("bpf", BPFFS, "bpf", MountFlags::empty(), None).at("mount a BPF file system at", Path::new(BPFFS))?;
        }
        let pins = Pins { directory: directory.into() };
        let existing = directory.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
        if !is_bpffs(existing) {
            let hint = "is in no BPF file system (mount -t bpf bpf DIRECTORY)";
            return Err(Error::new(directory.display().to_string(), hint));
        }
        Ok(pins)
    }

    pub fn path(&self, parts: &[&str]) -> PathBuf {
        self.directory.join(parts.iter().collect::<PathBuf>())
    }

    /// Makes the directory of that name, and those above it.
    pub fn make(&self, parts: &[&str]) -> Result<PathBuf> {
        let path = self.path(parts);
        fs::create_dir_all(&path).at("create", &path)?;
        Ok(path)
    }

    /// Everything of that name goes; what it kept alive goes with it.
    pub fn remove(&self, parts: &[&str]) -> Result<()> {
        let path = self.path(parts);
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).at("remove", &path),
            _ => Ok(()),
        }
    }

    pub fn names(&self, parts: &[&str]) -> Vec<String> {
        let entries = fs::read_dir(self.path(parts)).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }
}

fn is_bpffs(path: &Path) -> bool {
    statfs(path).is_ok_and(|found| found.f_type as u64 == BPF_FS_MAGIC)
}
