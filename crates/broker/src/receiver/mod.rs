//! Receivers: threads for every call that a member can block.
//!
//! Closing a descriptor that a member has sent can block (a socket that lingers, a file of a FUSE file system), and so can
//! closing a socket with such a descriptor in its queue. epoll_ctl(2) on a doorbell can block while its owner holds the epoll
//! mutex, and punching memory while a member holds the file's lock. So each trust domain has a thread that reads its members'
//! sockets, and closes everything that came from them. The main thread keeps all state, sends, and rings. It never waits for a
//! receiver. A receiver that is blocked delays only the domain that blocks it.
//!
//! ```text
//!                Command (never waits)
//!   main thread ----------------------> receiver of a domain: recvmsg, identify, epoll_ctl, sock_diag, close
//!               <----------------------
//!                Event (waits while the main thread has 256 to look at)
//! ```

pub mod loan;
pub mod mailbox;
pub mod message;
mod offers;
mod rings;
mod thread;

use crate::netns::View;
use crate::quota::{Accounts, Permit};
use mailbox::{Mailbox, News};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Descriptors of a receiver itself: its epoll instance, and an eventfd for each direction.
const DESCRIPTORS: usize = 3;
/// The thread calls nothing that recurses.
const STACK: usize = 256 * 1024;

/// A receiver, as seen by the main thread.
pub struct Receiver {
    pub mailbox: Arc<Mailbox>,
    pub news: News,
    pub accounts: Accounts,
    /// Number of connections that it reads from.
    pub connections: usize,
    /// Number of holes that it has not punched yet.
    pub punching: usize,
    /// Number of rechecks that it has not finished.
    pub rechecks: usize,
    /// Number of turned-away connections that it has not closed yet.
    pub turned_away: Arc<AtomicUsize>,
    _own: Permit,
}

impl Receiver {
    /// Starts the thread. Err: no memory or no descriptor.
    pub fn start(accounts: Accounts, view: View) -> io::Result<Receiver> {
        let own = accounts.descriptors.claim(DESCRIPTORS).ok_or(rustix::io::Errno::MFILE)?;
        let (mailbox, commands) = mailbox::commands()?;
        let (reports, news) = mailbox::reports()?;
        let epoll = thread::waits_for(&commands)?;
        let turned_away = Arc::new(AtomicUsize::new(0));
        let account = accounts.descriptors.clone();
        let parts = thread::Parts { epoll, commands, reports, account, turned_away: turned_away.clone() };
        let mailbox = Arc::new(mailbox);
        let run = move || thread::run(parts, view);
        std::thread::Builder::new().name("receiver".into()).stack_size(STACK).spawn(run)?;
        Ok(Receiver { mailbox, news, accounts, connections: 0, punching: 0, rechecks: 0, turned_away, _own: own })
    }

    /// Whether nothing of its domain is left, here or in the main thread.
    pub fn is_done(&self) -> bool {
        self.connections + self.punching == 0
            && self.turned_away.load(SeqCst) == 0
            && Arc::strong_count(&self.mailbox) == 1
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // Unread events may hold descriptors.
        while let Some(event) = self.news.next() {
            self.mailbox.send(message::Command::Discard(event));
        }
    }
}
