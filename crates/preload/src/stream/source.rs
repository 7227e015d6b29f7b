//! The source of a write.

use super::{iov, late};
use crate::user;
use libc::{MSG_DONTWAIT, iovec};
use sidestep_ring::Data;
use sidestep_sys::{Errno, Result};

pub trait Source {
    /// Number of bytes in all, as far as known.
    fn len(&self) -> usize;
    /// Copies up to `max` bytes, from byte `from` of the source, into the ring at `at`. Ok(0): no more.
    fn fill(&mut self, data: Data, at: u64, from: usize, max: usize) -> Result<usize>;
    /// Sends up to `max` bytes, from byte `from` of the source, by kernel, without waiting.
    fn send(&mut self, fd: i32, from: usize, max: usize, flags: i32) -> Result<usize>;
    /// Keeps all bytes for later (`late`); EAGAIN: they do not fit.
    fn keep(&mut self, index: u32) -> Result<usize>;
}

/// The program's buffers as a source.
pub struct Buffers<'a>(pub &'a [iovec]);

impl Source for Buffers<'_> {
    fn keep(&mut self, index: u32) -> Result<usize> {
        late::keep(index, self.0)
    }

    fn len(&self) -> usize {
        iov::total(self.0)
    }

    #[inline]
    fn fill(&mut self, data: Data, at: u64, from: usize, max: usize) -> Result<usize> {
        match put(self.0, data, at, from, max) {
            Ok(()) => Ok(max),
            Err(e) => self.fill_less(data, at, from, max, e),
        }
    }

    fn send(&mut self, fd: i32, from: usize, max: usize, flags: i32) -> Result<usize> {
        let mut part = iov::empty();
        let n = iov::slice(self.0, from, max, &mut part);
        // SAFETY: integers and null pointers: all zero is a value.
        let mut header: libc::msghdr = unsafe { core::mem::zeroed() };
        header.msg_iov = part.as_mut_ptr();
        header.msg_iovlen = n;
        // MSG_CMSG_COMPAT has no effect on send(2). sendmsg(2) refuses it, and does not come here with it.
        let flags = flags & i32::MAX | MSG_DONTWAIT;
        let args = [fd as usize, &raw const header as usize, flags as usize, 0, 0, 0];
        // SAFETY: the program's own buffers. Without MSG_NOSIGNAL the kernel raises SIGPIPE itself.
        unsafe { sidestep_sys::call(libc::SYS_sendmsg, args) }
    }
}

impl Buffers<'_> {
    /// A buffer is bad or ends too early: the first fragment may still be good.
    #[cold]
    #[inline(never)]
    fn fill_less(&self, data: Data, at: u64, from: usize, max: usize, e: Errno) -> Result<usize> {
        if max <= iov::GRAIN { Err(e) } else { put(self.0, data, at, from, iov::GRAIN).map(|()| iov::GRAIN) }
    }
}

#[inline]
fn put(iov: &[iovec], data: Data, at: u64, from: usize, len: usize) -> Result<()> {
    iov::pieces(iov, from, len, |src, len, done| {
        // SAFETY: a piece of the ring, which nobody reads before it is published.
        data.put(at + done as u64, src, len, |to, from, len| unsafe { user::copy(to, from, len) })
    })
}
