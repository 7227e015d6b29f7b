//! A device as descriptors, which can be passed to another process.

use crate::error::{Error, Result};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::fcntl_dupfd_cloexec;

/// Descriptors of a device. They keep the program attached, the sockets bound and the memory, and drive nothing.
pub struct Parts {
    pub(crate) link: OwnedFd,
    pub(crate) inject: OwnedFd,
    pub(crate) taken: OwnedFd,
    /// Socket and memory of each queue.
    pub(crate) queues: Vec<[OwnedFd; 2]>,
}

/// Descriptors besides those of queues.
const COMMON: usize = 3;

impl Parts {
    /// The descriptors in a fixed order, to be passed by SCM_RIGHTS: three, and two for each queue. One message can carry 253, which
    /// is enough for 125 queues.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let common = [&self.link, &self.inject, &self.taken];
        common.into_iter().chain(self.queues.iter().flatten()).map(AsFd::as_fd).collect()
    }

    /// Descriptors that were passed, in the order of [`Parts::descriptors`].
    ///
    /// # Errors
    ///
    /// [`Error::NotADevice`]: their number is wrong. [`crate::Device::from_parts`] looks at what they are.
    pub fn from_descriptors(descriptors: Vec<OwnedFd>) -> Result<Parts> {
        let count = descriptors.len();
        if count < COMMON + 2 || !(count - COMMON).is_multiple_of(2) {
            return Err(Error::NotADevice("their number is wrong"));
        }
        let mut all = descriptors.into_iter();
        let mut next = || all.next().ok_or(Error::NotADevice("their number is wrong"));
        let (link, inject, taken) = (next()?, next()?, next()?);
        let queues = (COMMON..count).step_by(2).map(|_| Ok([next()?, next()?])).collect::<Result<_>>()?;
        Ok(Parts { link, inject, taken, queues })
    }

    /// Copies of all descriptors.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]: the process has too many descriptors.
    pub fn try_clone(&self) -> Result<Parts> {
        Parts::from_descriptors(self.descriptors().into_iter().map(copy).collect::<Result<_>>()?)
    }
}

pub(crate) fn copy(descriptor: BorrowedFd) -> Result<OwnedFd> {
    fcntl_dupfd_cloexec(descriptor, 0).map_err(|source| Error::Call { doing: "copy a descriptor", source })
}
