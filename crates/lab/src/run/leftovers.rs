//! What a run has outside of its namespaces (a scratch directory and a cgroup), and what killed runs have left.
//!
//! A run holds locks on both. So a living run can be told from a dead one even from another container, where its pid means
//! nothing.

use crate::cgroup;
use rustix::fs::OFlags;
use rustix::process::geteuid;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

const PREFIX: &str = "sidestep-lab-";

pub fn name() -> String {
    format!("{PREFIX}{}", std::process::id())
}

pub fn scratch() -> PathBuf {
    std::env::temp_dir().join(name())
}

/// How often a sweep may remove a directory between its creation and its locking.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// Creates a directory, which belongs to this run while the file is open.
pub fn make(path: &Path, create: impl Fn(&Path) -> io::Result<()>) -> io::Result<File> {
    for _ in 0..TRIES {
        match create(path) {
            Err(why) if why.kind() != io::ErrorKind::AlreadyExists => return Err(why),
            _ => {}
        }
        match claim(path) {
            Ok(file) if is_at(&file, path) => return Ok(file),
            Err(why) if why.kind() == io::ErrorKind::PermissionDenied => return Err(why),
            _ => std::thread::sleep(PAUSE),
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "somebody else holds it"))
}

/// Opens and locks only a directory of this user. In a folder where everybody may write, another user's file could be anything: a
/// FIFO that blocks open(2), a symbolic link.
fn claim(path: &Path) -> io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::options().read(true).custom_flags(flags.bits() as i32).open(path)?;
    if file.metadata()?.uid() != geteuid().as_raw() {
        let why = "it belongs to somebody else: remove it";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    file.try_lock()?;
    Ok(file)
}

/// False if the directory was removed, and perhaps created again, between opening and locking.
fn is_at(file: &File, path: &Path) -> bool {
    let place = |data: Metadata| (data.dev(), data.ino());
    file.metadata().is_ok_and(|held| path.metadata().is_ok_and(|there| place(held) == place(there)))
}

/// Removes what dead runs have left. Each directory is locked while it is removed.
pub fn sweep() {
    for (path, _claim) in dead(&std::env::temp_dir()) {
        // The directory is empty: a run mounts a file system of its own there.
        let _ = std::fs::remove_dir(path);
    }
    for (path, _claim) in cgroup::root().iter().flat_map(|root| dead(root)) {
        cgroup::remove(&path);
    }
}

fn dead(folder: &Path) -> Vec<(PathBuf, File)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let ours = entries.filter(|each| each.file_name().to_string_lossy().starts_with(PREFIX));
    ours.filter_map(|each| Some((each.path(), claim(&each.path()).ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{DirBuilder, create_dir, remove_dir_all};

    /// Other users may put anything into the folder of scratch directories.
    #[test]
    fn what_is_no_directory_of_ours_is_neither_waited_for_nor_taken() {
        let folder = std::env::temp_dir().join(format!("leftovers-{}", std::process::id()));
        create_dir(&folder).unwrap();
        let at = |name: &str| folder.join(format!("{PREFIX}{name}"));
        let (mode, rights) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), mode, rights, 0).unwrap();
        std::os::unix::fs::symlink("/", at("link")).unwrap();
        File::create(at("file")).unwrap();
        for name in ["ours", "theirs"] {
            create_dir(at(name)).unwrap();
        }
        std::os::unix::fs::chown(at("theirs"), Some(65534), Some(65534)).unwrap();
        let found: Vec<PathBuf> = dead(&folder).into_iter().map(|(path, _)| path).collect();
        assert_eq!(found, [at("ours")]);
        let taken = make(&at("theirs"), |path| DirBuilder::new().create(path)).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::PermissionDenied, "{taken}");
        remove_dir_all(&folder).unwrap();
    }
}
