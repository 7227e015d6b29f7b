//! A descriptor that counts in its domain's quota.

use crate::quota::{Account, Permit};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Counts for as long as the descriptor is open.
#[derive(Debug)]
pub struct Counted {
    fd: OwnedFd,
    _permit: Permit,
}

impl Counted {
    /// None: the domain's quota is used up, and `fd` is closed.
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
