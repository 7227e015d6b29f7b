//! The memory of a link, as a file.

use crate::quota::Permit;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Counts for both domains of the link as long as it is open: on its way to a member, or until what nobody uses is given
/// back, it outlives the link.
#[derive(Debug)]
pub struct Memory {
    fd: OwnedFd,
    _permits: Vec<Permit>,
}

impl Memory {
    pub fn new(fd: OwnedFd, permits: Vec<Permit>) -> Memory {
        Memory { fd, _permits: permits }
    }
}

impl AsFd for Memory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A part of it that nobody uses any more.
#[derive(Debug)]
pub struct Hole {
    pub memory: Arc<Memory>,
    pub link: u32,
    pub slot: usize,
    /// In bytes.
    pub at: u64,
    pub len: u64,
}
