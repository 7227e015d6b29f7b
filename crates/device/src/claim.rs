//! At most one process drives a queue.

use crate::error::{Error, Result};
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// A child that a process has forked also has its locks, until it executes its program. This is more than that takes.
const FORK: Duration = Duration::from_millis(200);

/// A lock on the UMEM's file. It ends with this value, or with the process, after the process's memory was unmapped.
pub(crate) struct Claim {
    _file: OwnedFd,
}

impl Claim {
    /// A passed descriptor shares its lock with the one that it was copied from. So this opens the file again.
    pub fn new(umem: BorrowedFd) -> Result<Claim> {
        let path = format!("/proc/self/fd/{}", umem.as_raw_fd());
        let doing = "open the UMEM again (is /proc mounted?)";
        let file = open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(|source| Error::Call { doing, source })?;
        let began = Instant::now();
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Claim { _file: file }),
                Err(Errno::WOULDBLOCK) if began.elapsed() < FORK => std::thread::sleep(Duration::from_millis(1)),
                Err(Errno::WOULDBLOCK) => return Err(Error::InUse),
                Err(source) => return Err(Error::Call { doing: "lock the UMEM", source }),
            }
        }
    }
}
