//! Descriptors whose last close may have to wait for a stranger: only a receiver thread closes them.

use super::mailbox::Mailbox;
use super::message::Command;
use crate::counted::Counted;
use rustix::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// One descriptor in the hands of the main thread, which uses it and gives it back: it is never the one that closes it.
#[derive(Debug)]
pub struct Loan {
    /// None once it is given back.
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

    /// For a command to the same receiver, and nothing else: who drops it may be the one that closes it.
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
