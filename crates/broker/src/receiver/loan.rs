//! Descriptors whose last close may block: only receiver threads close them.

use super::mailbox::Mailbox;
use super::message::Command;
use crate::counted::Counted;
use rustix::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// A descriptor lent to the main thread, which uses it and gives it back, and so never makes the last close.
#[derive(Debug)]
pub struct Loan {
    /// None: given back.
    fd: Option<Arc<Counted>>,
    home: Arc<Mailbox>,
}

impl Loan {
    pub fn new(fd: Arc<Counted>, home: &Arc<Mailbox>) -> Loan {
        Loan { fd: Some(fd), home: home.clone() }
    }

    fn lent(&self) -> &Arc<Counted> {
        self.fd.as_ref().expect("a loan is given back when it is dropped")
    }

    /// Only for a command to the same receiver: dropping this may close the descriptor.
    pub fn for_its_receiver(&self) -> Arc<Counted> {
        Arc::clone(self.lent())
    }
}

impl AsFd for Loan {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.lent().as_fd()
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(fd) = self.fd.take() {
            self.home.send(Command::Close(fd));
        }
    }
}
