//! Records for one member that its socket has not taken yet.

use crate::memory::Memory;
use crate::quota::{Account, Permit};
use crate::receiver::loan::Loan;
use crate::{rights, wire};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use sidestep_abi::msg::Msg;
use std::collections::VecDeque;
use std::sync::Arc;

/// A member with more waiting records than this does not read its socket. It is paired no more, and nothing is read from it.
pub const FULL: usize = 4096;
/// Waiting records that each member may have for free; further ones count in its domain's quota.
pub const FREE_RECORDS: usize = 16;

/// A descriptor that goes with a record.
#[derive(Debug)]
pub enum Attached {
    /// A member's page.
    File(Arc<OwnedFd>),
    /// Memory of a link.
    Memory(Arc<Memory>),
    /// An eventfd that rings a doorbell.
    Ringer(Loan),
    /// An offered socket.
    Socket(Loan),
}

impl AsFd for Attached {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Attached::File(file) => file.as_fd(),
            Attached::Memory(memory) => memory.as_fd(),
            Attached::Ringer(lent) | Attached::Socket(lent) => lent.as_fd(),
        }
    }
}

struct Waiting {
    msg: Msg,
    fd: Option<Attached>,
    _permit: Option<Permit>,
}

impl Waiting {
    fn send(&self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        rights::past_too_many_in_flight(|| wire::send(socket, &self.msg, self.fd.as_ref().map(|fd| fd.as_fd())))
    }
}

/// Records for one member, in order.
#[derive(Default)]
pub struct Outbox {
    waiting: VecDeque<Waiting>,
}

/// The members of the domain leave too many records unread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow;

/// Result of a flush.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flushed {
    /// Number of records that the socket has taken.
    pub sent: usize,
    /// The other end is gone, or the kernel refuses: nothing more can be sent.
    pub broken: bool,
    /// Too many descriptors of the broker's user are in flight, whoever sent them. The next record has one, and waits until there are
    /// fewer, which the poller does not report.
    pub starved: bool,
}

impl Outbox {
    /// Adds a record. Beyond [`FREE_RECORDS`] it counts in the account.
    pub fn push(&mut self, msg: Msg, fd: Option<Attached>, account: &Arc<Account>) -> Result<(), Overflow> {
        let is_free = self.waiting.len() < FREE_RECORDS;
        let permit = if is_free { None } else { Some(account.claim(1).ok_or(Overflow)?) };
        self.waiting.push_back(Waiting { msg, fd, _permit: permit });
        Ok(())
    }

    /// Whether no record waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many records wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether the member must read before it gets anything more.
    pub fn is_full(&self) -> bool {
        self.waiting.len() > FULL
    }

    /// Sends as many records as the socket takes, in order.
    pub fn flush(&mut self, socket: BorrowedFd<'_>) -> Flushed {
        let mut flushed = Flushed::default();
        while let Some(next) = self.waiting.front() {
            match next.send(socket) {
                Ok(()) => {
                    flushed.sent += 1;
                    self.waiting.pop_front();
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::TOOMANYREFS) => {
                    flushed.starved = true;
                    break;
                }
                Err(_) => {
                    flushed.broken = true;
                    break;
                }
            }
        }
        flushed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::Budget;
    use crate::wire::Incoming;
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    use sidestep_abi::msg::Kind;

    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("socket pair")
    }

    fn account(limit: usize) -> Arc<Account> {
        Account::new(&Budget::new(limit))
    }

    fn record(n: u64) -> Msg {
        Msg { arg: n, ..Msg::new(Kind::Done) }
    }

    #[test]
    fn what_a_full_socket_does_not_take_waits_in_order() {
        let (ours, theirs) = pair();
        let (mut outbox, mut read, account) = (Outbox::default(), 0, account(10_000));
        for n in 0..5000 {
            outbox.push(record(n), None, &account).expect("room");
        }
        assert_eq!(account.held(), 5000 - FREE_RECORDS);
        assert!(outbox.is_full());
        let first = outbox.flush(ours.as_fd());
        assert!(!first.broken && first.sent > 0 && !outbox.is_empty(), "{first:?}");
        assert_eq!(outbox.flush(ours.as_fd()), Flushed::default());
        while read < 5000 {
            match wire::receive(theirs.as_fd()) {
                Incoming::Record(got) => {
                    assert_eq!(got.msg.arg, read);
                    read += 1;
                }
                _ => assert!(outbox.flush(ours.as_fd()).sent > 0, "the socket has room again"),
            }
        }
        assert!(outbox.is_empty() && !outbox.is_full());
        assert_eq!(account.held(), 0);
    }

    #[test]
    fn a_domain_that_does_not_read_has_its_limit() {
        let (mut outbox, account) = (Outbox::default(), account(30));
        let pushed = (0..100).take_while(|n| outbox.push(record(*n), None, &account).is_ok()).count();
        assert_eq!(pushed, FREE_RECORDS + 20);
        assert_eq!(Outbox::default().push(record(0), None, &account), Ok(()), "a first one may always wait");
    }

    #[test]
    fn descriptors_travel_with_their_record() {
        let (ours, theirs) = pair();
        let mut outbox = Outbox::default();
        let file = Arc::new(OwnedFd::from(std::fs::File::open("/dev/null").expect("open")));
        outbox.push(record(1), Some(Attached::File(file.clone())), &account(0)).expect("room");
        outbox.push(record(2), None, &account(0)).expect("room");
        assert_eq!(outbox.flush(ours.as_fd()).sent, 2);
        assert_eq!(Arc::strong_count(&file), 1, "let go once sent");
        let fds: Vec<_> = std::iter::from_fn(|| match wire::receive(theirs.as_fd()) {
            Incoming::Record(got) => Some((got.msg.arg, got.fd.is_some())),
            _ => None,
        })
        .collect();
        assert_eq!(fds, [(1, true), (2, false)]);
    }

    #[test]
    fn a_closed_socket_is_broken() {
        let (ours, theirs) = pair();
        drop(theirs);
        let mut outbox = Outbox::default();
        outbox.push(record(1), None, &account(0)).expect("room");
        assert!(outbox.flush(ours.as_fd()).broken);
    }
}
