//! One agent for each directory of pins: two would undo each other's work, whatever sockets they listen at.

use rustix::fs::{FlockOperation, flock, major, minor};
use sidestep_ebpf::error::Error;
use sidestep_ebpf::pins::Pins;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Why it cannot be found out whether another agent holds the lock.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error(transparent)]
    Pins(#[from] Error),
    #[error("{}: cannot lock it", pins.display())]
    Lock { pins: PathBuf, source: io::Error },
}

/// The lock, held until this is dropped.
pub struct Lock {
    _directory: File,
}

impl Lock {
    /// None: another process has it. Creates the directory if necessary.
    pub fn acquire(pins: &Path) -> Result<Option<Lock>, LockError> {
        let checked = Pins::new(pins)?;
        Lock::of(pins, || checked.create())
    }

    fn of(pins: &Path, create: impl Fn() -> Result<(), Error>) -> Result<Option<Lock>, LockError> {
        let cannot = |source| LockError::Lock { pins: pins.into(), source };
        loop {
            create()?;
            let directory = File::open(pins).map_err(cannot)?;
            match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) if directory.metadata().is_ok_and(|found| identity(pins) == Some(number(&found))) => {
                    return Ok(Some(Lock { _directory: directory }));
                }
                Ok(()) => {} // `--detach` has removed the directory meanwhile: try again
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
                Err(error) => return Err(cannot(error.into())),
            }
        }
    }
}

/// Identifies the directory independently of its path: device and inode numbers.
pub fn identity(pins: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(pins).ok().as_ref().map(number)
}

fn number(of: &Metadata) -> (u64, u64) {
    (of.dev(), of.ino())
}

/// Another process holds the lock.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an agent runs already with the pins {} ({})", pins.display(), told(*by))]
pub struct Held {
    pins: PathBuf,
    /// None: a process of another PID namespace.
    by: Option<u32>,
}

impl Held {
    pub fn new(pins: &Path) -> Held {
        let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
        Held { pins: pins.into(), by: identity(pins).and_then(|identity| holder(&locks, identity)) }
    }
}

fn told(process: Option<u32>) -> String {
    process.map_or_else(|| "in another PID namespace".into(), |pid| format!("process {pid}"))
}

/// proc_locks(5) does not show process ids of other PID namespaces.
fn holder(locks: &str, (device, inode): (u64, u64)) -> Option<u32> {
    let file = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    let lines = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut held = lines.filter(|words| words.get(1) == Some(&"FLOCK") && words.get(5) == Some(&file.as_str()));
    held.find_map(|words| words.get(4)?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidestep_ebpf::error::Doing;

    #[test]
    fn of_two_agents_the_second_is_told_so() {
        let directory = tempfile::tempdir().unwrap();
        let pins = directory.path().join("pins");
        let take = || Lock::of(&pins, || std::fs::create_dir_all(&pins).at("create", &pins));
        let first = take().unwrap().unwrap();
        assert!(take().unwrap().is_none());
        let held = Held::new(&pins).to_string();
        assert!(held.ends_with(&format!("(process {})", std::process::id())), "{held}");
        drop(first);
        assert!(take().unwrap().is_some());
    }

    #[test]
    fn a_holder_is_found_by_device_and_inode() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 00:1b:5 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 8 00:1b:55 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 9 00:1b:5 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 10 00:1b:5 0 EOF\n";
        assert_eq!(holder(locks, (rustix::fs::makedev(0, 0x1b), 5)), Some(9));
        assert_eq!(holder(locks, (rustix::fs::makedev(0, 0x1c), 5)), None);
    }
}
