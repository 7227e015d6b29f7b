//! A descriptor that counts for its domain.

use crate::quota::{Account, Permit};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Counts for as long as it is open.
#[derive(Debug)]
pub struct Counted {
    fd: OwnedFd,
    _permit: Permit,
}

impl Counted {
    /// None: the domain holds enough, and `fd` is closed.
    pub fn new(fd: OwnedFd, account: &Arc<Account>) -> Option<Counted> {
        account.claim(1).map(|permit| Counted::with(fd, permit))
    }

    pub fn with(fd: OwnedFd, permit: Permit) -> Counted {
        Counted { fd, _permit: permit }
    }
}

impl AsFd for Counted {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
