//! Records for one member that its socket did not take yet.

use crate::wire;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use sidestep_abi::msg::Msg;
use std::collections::VecDeque;
use std::rc::Rc;

/// A member with more records than this waiting does not drain its socket: it is given no more matches, and
/// nothing is read from it.
pub const FULL: usize = 4096;

#[derive(Default)]
pub struct Outbox {
    waiting: VecDeque<(Msg, Option<Rc<OwnedFd>>)>,
}

/// What became of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flushed {
    /// Records that are in the socket now.
    pub sent: usize,
    /// The other end is gone or the kernel refuses: nothing more will ever be sent.
    pub broken: bool,
}

impl Outbox {
    pub fn push(&mut self, msg: Msg, fd: Option<Rc<OwnedFd>>) {
        self.waiting.push_back((msg, fd));
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn is_full(&self) -> bool {
        self.waiting.len() > FULL
    }

    /// Puts into the socket what it takes, in order.
    pub fn flush(&mut self, socket: BorrowedFd<'_>) -> Flushed {
        let mut sent = 0;
        while let Some((msg, fd)) = self.waiting.front() {
            match wire::send(socket, msg, fd.as_ref().map(|fd| fd.as_fd())) {
                Ok(()) => {
                    sent += 1;
                    self.waiting.pop_front();
                }
                Err(Errno::AGAIN) => break,
                Err(_) => return Flushed { sent, broken: true },
            }
        }
        Flushed { sent, broken: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Incoming;
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    use sidestep_abi::msg::Kind;

    fn pair() -> (OwnedFd, OwnedFd) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("socket pair")
    }

    fn record(n: u64) -> Msg {
        Msg { arg: n, ..Msg::new(Kind::Done) }
    }

    #[test]
    fn what_a_full_socket_does_not_take_waits_in_order() {
        let (ours, theirs) = pair();
        let (mut outbox, mut read) = (Outbox::default(), 0);
        for n in 0..5000 {
            outbox.push(record(n), None);
        }
        assert!(outbox.is_full());
        let first = outbox.flush(ours.as_fd());
        assert!(!first.broken && first.sent > 0 && !outbox.is_empty(), "{first:?}");
        assert_eq!(outbox.flush(ours.as_fd()), Flushed { sent: 0, broken: false });
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
    }

    #[test]
    fn descriptors_travel_with_their_record() {
        let (ours, theirs) = pair();
        let mut outbox = Outbox::default();
        let file = Rc::new(OwnedFd::from(std::fs::File::open("/dev/null").expect("open")));
        outbox.push(record(1), Some(file.clone()));
        outbox.push(record(2), None);
        assert_eq!(outbox.flush(ours.as_fd()).sent, 2);
        assert_eq!(Rc::strong_count(&file), 1, "let go once sent");
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
        outbox.push(record(1), None);
        assert!(outbox.flush(ours.as_fd()).broken);
    }
}
