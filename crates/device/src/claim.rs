//! At most one process drives a queue.

use crate::error::{Error, Result};
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;

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
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Claim { _file: file }),
            Err(Errno::WOULDBLOCK) => Err(Error::InUse),
            Err(source) => Err(Error::Call { doing: "lock the UMEM", source }),
        }
    }
}
