//! The memory of a link, as a file.

use crate::quota::Permit;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Counts in both domains of the link for as long as the file is open. That may be longer than the link: on its way to a
/// member, or until unused parts are given back.
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

/// A part of the memory that nobody uses any more.
#[derive(Debug)]
pub struct Hole {
    pub memory: Arc<Memory>,
    pub link: u32,
    pub slot: usize,
    /// Offset in bytes.
    pub at: u64,
    pub len: u64,
}
