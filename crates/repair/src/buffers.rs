//! Room in the socket's buffers while its queues are filled. The program's sizes are restored afterwards.

use crate::kernel::{CallError, SocketOption};
use crate::options;
use rustix::fd::BorrowedFd;
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

/// What has grown, and how it was before.
#[derive(Default)]
pub(crate) struct Grown {
    receive: Option<u32>,
    send: Option<Send>,
    /// SO_BUF_LOCK: which sizes the program has set itself; the kernel adapts the others.
    locks: Option<u32>,
}

struct Send {
    size: u32,
    unsent_limit: u32,
}

impl Grown {
    /// Doubles the buffer.
    pub(crate) fn grow(&mut self, fd: BorrowedFd, buffer: Buffer) -> Result<(), CallError> {
        let (size, force) = buffer.options();
        let now = size.get(fd)?;
        if now >= MOST {
            return Err(CallError { call: "send(2)", source: Errno::NOBUFS });
        }
        self.remember(fd, buffer, now)?;
        // The kernel doubles the value for its own needs.
        force.set(fd, now)
    }

    fn remember(&mut self, fd: BorrowedFd, buffer: Buffer, size: u32) -> Result<(), CallError> {
        if self.locks.is_none() {
            self.locks = Some(options::SO_BUF_LOCK.get(fd)?);
        }
        match buffer {
            Buffer::Receive => _ = self.receive.get_or_insert(size),
            Buffer::Send if self.send.is_none() => {
                let unsent_limit = options::TCP_NOTSENT_LOWAT.get(fd)?;
                self.send = Some(Send { size, unsent_limit });
                options::TCP_NOTSENT_LOWAT.set(fd, NO_LIMIT)?;
            }
            Buffer::Send => {}
        }
        Ok(())
    }

    /// Restores the sizes. Bytes that are already queued stay.
    pub(crate) fn restore(self, fd: BorrowedFd) -> Result<(), CallError> {
        if let Some(size) = self.receive {
            options::SO_RCVBUFFORCE.set(fd, size / 2)?;
        }
        if let Some(Send { size, unsent_limit }) = self.send {
            options::SO_SNDBUFFORCE.set(fd, size / 2)?;
            options::TCP_NOTSENT_LOWAT.set(fd, unsent_limit)?;
        }
        self.locks.map_or(Ok(()), |locks| options::SO_BUF_LOCK.set(fd, locks))
    }
}
