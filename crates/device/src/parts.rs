//! A device as descriptors, which can be passed to another process.

use crate::error::{Error, Result};
use crate::taken::Taken;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::fcntl_dupfd_cloexec;

/// Descriptors of a device. They keep the program attached, the sockets bound and the memory, and drive nothing.
pub struct Parts {
    pub(crate) link: OwnedFd,
    pub(crate) inject: OwnedFd,
    pub(crate) taken: OwnedFd,
    /// Socket and memory of each queue.
    pub(crate) queues: Vec<[OwnedFd; 2]>,
    /// If frames are diverted: the inlet, the link of its program, and the socket that receives from it for the only queue.
    pub(crate) inlet: Option<[OwnedFd; INLET]>,
}

/// Descriptors besides those of queues.
const COMMON: usize = 3;
/// Those of an inlet. An odd number, so that the number of all says whether there is one.
const INLET: usize = 3;

impl Parts {
    /// The descriptors in a fixed order, to be passed by SCM_RIGHTS: three, two for each queue, and three for an inlet. One message can
    /// carry 253, which is enough for 125 queues of a single device only.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let common = [&self.link, &self.inject, &self.taken];
        let others = self.queues.iter().flatten().chain(self.inlet.iter().flatten());
        common.into_iter().chain(others).map(AsFd::as_fd).collect()
    }

    /// Descriptors that were passed, in the order of [`Parts::descriptors`].
    ///
    /// # Errors
    ///
    /// [`Error::NotADevice`]: their number is wrong. [`crate::Device::from_parts`] looks at what they are.
    pub fn from_descriptors(descriptors: Vec<OwnedFd>) -> Result<Parts> {
        let others = descriptors.len().saturating_sub(COMMON);
        let has_inlet = !others.is_multiple_of(2);
        let mut all = descriptors.into_iter();
        let mut next = || all.next().ok_or(Error::NotADevice("their number is wrong"));
        let (link, inject, taken) = (next()?, next()?, next()?);
        let of_queues = others.saturating_sub(if has_inlet { INLET } else { 0 });
        // Without a queue there is no device.
        let queues = (0..of_queues.max(2)).step_by(2).map(|_| Ok([next()?, next()?])).collect::<Result<_>>()?;
        let inlet = has_inlet.then(|| Ok([next()?, next()?, next()?])).transpose()?;
        Ok(Parts { link, inject, taken, queues, inlet })
    }

    /// The taken connections. No process need drive the device.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]: the process has too many descriptors. [`Error::NotADevice`]: the table is another.
    pub fn taken(&self) -> Result<Taken> {
        Taken::new(copy(self.taken.as_fd())?)
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

/// A copy of a descriptor.
pub(crate) fn copy(descriptor: BorrowedFd) -> Result<OwnedFd> {
    fcntl_dupfd_cloexec(descriptor, 0).map_err(|source| Error::Call { doing: "copy a descriptor", source })
}
