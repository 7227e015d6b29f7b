//! At most one process drives a queue.

use crate::error::{Error, Result};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// A child that a process has forked also has its locks, until it executes its program. This is more than that takes.
const FORK: Duration = Duration::from_millis(200);

/// A lock on the UMEM's file. It ends with this value, or with the process, after the process's memory was unmapped.
pub(crate) struct Claim {
    file: OwnedFd,
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
                Ok(()) => return Ok(Claim { file }),
                Err(Errno::WOULDBLOCK) if began.elapsed() < FORK => std::thread::sleep(Duration::from_millis(1)),
                Err(Errno::WOULDBLOCK) => return Err(Error::InUse),
                Err(source) => return Err(Error::Call { doing: "lock the UMEM", source }),
            }
        }
    }

    /// The file. Every copy of this descriptor has the lock, too.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Ends the claim of a process that drove a queue, by a copy of one of [`crate::Device::claims`]. A process that was killed has its locks
/// for as long as one of its threads sleeps in the kernel, although it drives nothing any more.
///
/// # Errors
///
/// [`Error::Call`]: this is no such descriptor.
pub fn end_claim(claim: BorrowedFd) -> Result<()> {
    flock(claim, FlockOperation::Unlock).map_err(|source| Error::Call { doing: "end the claim on a queue", source })
}
