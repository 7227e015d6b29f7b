//! The calls that rustix lacks: socket options by number, and the ioctls of TCP's queues. All unsafe code of the crate is here.

use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;
use std::ffi::c_int;
use std::marker::PhantomData;
use std::mem::{MaybeUninit, size_of};

/// A call of the kernel that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call} failed: {source}")]
pub struct CallError {
    /// The call, as the man pages name it; for setsockopt(2), getsockopt(2) and ioctl(2) the option or the request.
    pub call: &'static str,
    /// The kernel's answer.
    pub source: Errno,
}

/// Makes a [`CallError`] of a result of rustix.
pub(crate) fn named<T>(call: &'static str, result: rustix::io::Result<T>) -> Result<T, CallError> {
    result.map_err(|source| CallError { call, source })
}

/// A type that any bytes are a value of, and that has no padding.
///
/// # Safety
/// The implementor promises both.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: no bytes at all.
unsafe impl Plain for () {}
// SAFETY: integers and arrays of them have no padding and no invalid values.
unsafe impl Plain for i32 {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}
// SAFETY: as above.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// A socket option with the type of its value.
#[derive(Clone, Copy)]
pub(crate) struct SocketOption<T> {
    level: c_int,
    number: c_int,
    name: &'static str,
    value: PhantomData<T>,
}

impl<T: Plain> SocketOption<T> {
    pub(crate) const fn new(level: c_int, number: c_int, name: &'static str) -> SocketOption<T> {
        SocketOption { level, number, name, value: PhantomData }
    }

    /// The value.
    pub(crate) fn get(&self, fd: BorrowedFd) -> Result<T, CallError> {
        Ok(self.get_with_len(fd)?.0)
    }

    /// The value, zero where the kernel wrote nothing, and how many bytes the kernel wrote.
    pub(crate) fn get_with_len(&self, fd: BorrowedFd) -> Result<(T, usize), CallError> {
        let mut value = MaybeUninit::<T>::zeroed();
        let mut len = size_of::<T>() as libc::socklen_t;
        let at = value.as_mut_ptr().cast();
        // SAFETY: `at` and `len` describe `value`, which outlives the call.
        let done = unsafe { libc::getsockopt(fd.as_raw_fd(), self.level, self.number, at, &raw mut len) };
        named(self.name, outcome(done))?;
        // SAFETY: all bytes are initialised, and any bytes are a `T`.
        Ok((unsafe { value.assume_init() }, len as usize))
    }

    /// The value; None if the kernel does not know the option.
    pub(crate) fn get_if_known(&self, fd: BorrowedFd) -> Result<Option<T>, CallError> {
        match self.get(fd) {
            Ok(value) => Ok(Some(value)),
            Err(error) if matches!(error.source, Errno::NOPROTOOPT | Errno::OPNOTSUPP) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn set(&self, fd: BorrowedFd, value: T) -> Result<(), CallError> {
        let at = (&raw const value).cast();
        let len = size_of::<T>() as libc::socklen_t;
        // SAFETY: `at` and `len` describe `value`, which outlives the call.
        let done = unsafe { libc::setsockopt(fd.as_raw_fd(), self.level, self.number, at, len) };
        named(self.name, outcome(done))
    }

    /// Whether the option has a value: the kernel answers with a length of zero if not.
    pub(crate) fn is_present(&self, fd: BorrowedFd) -> Result<bool, CallError> {
        Ok(self.get_with_len(fd)?.1 > 0)
    }
}

/// Attaches a filter that drops every packet of the socket.
pub(crate) fn drop_packets(fd: BorrowedFd) -> Result<(), CallError> {
    let mut drop = libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
    let program = libc::sock_fprog { len: 1, filter: &raw mut drop };
    let (at, len) = ((&raw const program).cast(), size_of::<libc::sock_fprog>() as libc::socklen_t);
    // SAFETY: `program` covers one instruction; the kernel copies both before the call returns.
    let done = unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, at, len) };
    named("SO_ATTACH_FILTER", outcome(done))
}

/// An ioctl(2) request that answers with an `int`.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    number: u32,
    name: &'static str,
}

/// Unread bytes.
pub(crate) const SIOCINQ: Request = Request { number: 0x541B, name: "SIOCINQ" };
/// Bytes that the peer has not acknowledged, sent or not.
pub(crate) const SIOCOUTQ: Request = Request { number: 0x5411, name: "SIOCOUTQ" };
/// Bytes that have not been sent.
pub(crate) const SIOCOUTQNSD: Request = Request { number: 0x894B, name: "SIOCOUTQNSD" };
/// Whether the next byte to read is urgent.
pub(crate) const SIOCATMARK: Request = Request { number: 0x8905, name: "SIOCATMARK" };

impl Request {
    pub(crate) fn ask(self, fd: BorrowedFd) -> Result<u32, CallError> {
        let mut answer: c_int = 0;
        // SAFETY: each request above writes one `int` through its argument, which outlives the call.
        let done = unsafe { libc::ioctl(fd.as_raw_fd(), self.number as _, &raw mut answer) };
        named(self.name, outcome(done))?;
        u32::try_from(answer).map_err(|_| CallError { call: self.name, source: Errno::OVERFLOW })
    }
}

fn outcome(returned: c_int) -> rustix::io::Result<()> {
    if returned == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
