//! Room in the socket's buffers while its queues are filled. The program's sizes are restored afterwards.

use crate::kernel::{CallError, SocketOption};
use crate::options;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Buffer {
    Receive,
    Send,
}

impl Buffer {
    /// The option that reads the size, and the one that sets it whatever the limits say.
    fn options(self) -> (SocketOption<u32>, SocketOption<u32>) {
        match self {
            Buffer::Receive => (options::SO_RCVBUF, options::SO_RCVBUFFORCE),
            Buffer::Send => (options::SO_SNDBUF, options::SO_SNDBUFFORCE),
        }
    }
}

/// Larger buffers are a fault of the caller, not a need.
const MOST: u32 = 1 << 30;
/// A limit that no queue reaches.
const NO_LIMIT: u32 = u32::MAX;

/// The sizes of a socket's buffers, as the program and the kernel have set them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    receive: u32,
    send: u32,
    /// TCP_NOTSENT_LOWAT.
    unsent_limit: u32,
    /// SO_BUF_LOCK: which sizes the program has set itself; the kernel adapts the others.
    locks: u32,
}

impl Buffers {
    /// Reads them, before a give-back.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn read(fd: impl AsFd) -> Result<Buffers, CallError> {
        let fd = fd.as_fd();
        Ok(Buffers {
            receive: options::SO_RCVBUF.get(fd)?,
            send: options::SO_SNDBUF.get(fd)?,
            unsent_limit: options::TCP_NOTSENT_LOWAT.get(fd)?,
            locks: options::SO_BUF_LOCK.get(fd)?,
        })
    }

    /// Two words that say the same, for shared memory.
    pub fn words(&self) -> [u64; 2] {
        [pair(self.receive, self.send), pair(self.unsent_limit, self.locks)]
    }

    /// What [`Buffers::words`] has said.
    pub fn from_words([sizes, others]: [u64; 2]) -> Buffers {
        let ((receive, send), (unsent_limit, locks)) = (halves(sizes), halves(others));
        Buffers { receive, send, unsent_limit, locks }
    }

    /// Sets those that are different. Bytes that are already queued stay.
    fn restore(&self, fd: BorrowedFd) -> Result<(), CallError> {
        for (buffer, was) in [(Buffer::Receive, self.receive), (Buffer::Send, self.send)] {
            let (size, force) = buffer.options();
            if size.get(fd)? != was {
                // The kernel doubles the value for its own needs.
                force.set(fd, was / 2)?;
            }
        }
        options::TCP_NOTSENT_LOWAT.set(fd, self.unsent_limit)?;
        options::SO_BUF_LOCK.set(fd, self.locks)
    }
}

fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

/// Whether buffers have grown, and how they were before.
pub(crate) struct Grown {
    before: Buffers,
    has_grown: bool,
}

impl Grown {
    /// Nothing has grown yet.
    pub(crate) fn since(before: Buffers) -> Grown {
        Grown { before, has_grown: false }
    }

    /// A process that was killed may have let them grow.
    pub(crate) fn found(before: Buffers) -> Grown {
        Grown { before, has_grown: true }
    }

    /// Doubles the buffer.
    pub(crate) fn grow(&mut self, fd: BorrowedFd, buffer: Buffer) -> Result<(), CallError> {
        let (size, force) = buffer.options();
        let now = size.get(fd)?;
        if now >= MOST {
            return Err(CallError { call: "send(2)", source: Errno::NOBUFS });
        }
        self.has_grown = true;
        if buffer == Buffer::Send {
            options::TCP_NOTSENT_LOWAT.set(fd, NO_LIMIT)?;
        }
        force.set(fd, now)
    }

    /// Restores the sizes.
    pub(crate) fn restore(&self, fd: BorrowedFd) -> Result<(), CallError> {
        if self.has_grown { self.before.restore(fd) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_say_the_same() {
        let buffers = Buffers { receive: 1, send: u32::MAX, unsent_limit: u32::MAX - 1, locks: 3 };
        assert_eq!(Buffers::from_words(buffers.words()), buffers);
    }
}
