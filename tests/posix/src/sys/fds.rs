//! Descriptors: making, duplicating, closing, and questions about them.
//!
//! `under_NAME` is glibc's alias `__NAME`, and `syscall_NAME` goes past libc's function.

#![allow(missing_docs)] // A function with the name of a call makes this call.

use libc::{c_int, c_uint};

use super::errno::{Errno, Outcome, outcome};
use super::{Fd, glibc};

pub fn close(fd: Fd) -> Outcome {
    // SAFETY: no pointers; whoever calls owns the number.
    outcome(unsafe { libc::close(fd) })
}

pub fn under_close(fd: Fd) -> Outcome {
    // SAFETY: no pointers; whoever calls owns the number.
    outcome(unsafe { glibc::__close(fd) })
}

/// Closes as libuv does: past the libc function `close`.
pub fn syscall_close(fd: Fd) -> Outcome {
    // SAFETY: close takes one number.
    outcome(unsafe { libc::syscall(libc::SYS_close, fd) })
}

pub fn close_range(first: Fd, last: Fd, flags: c_uint) -> Outcome {
    // SAFETY: no pointers; whoever calls owns the numbers.
    outcome(unsafe { glibc::close_range(first as c_uint, last as c_uint, flags as c_int) })
}

pub fn closefrom(first: Fd) {
    // SAFETY: no pointers; whoever calls owns the numbers.
    unsafe { glibc::closefrom(first) }
}

pub fn dup(fd: Fd) -> Outcome {
    // SAFETY: no pointers.
    outcome(unsafe { libc::dup(fd) })
}

pub fn dup2(fd: Fd, to: Fd) -> Outcome {
    // SAFETY: no pointers.
    outcome(unsafe { libc::dup2(fd, to) })
}

pub fn under_dup2(fd: Fd, to: Fd) -> Outcome {
    // SAFETY: no pointers.
    outcome(unsafe { glibc::__dup2(fd, to) })
}

pub fn dup3(fd: Fd, to: Fd, flags: c_int) -> Outcome {
    // SAFETY: no pointers.
    outcome(unsafe { libc::dup3(fd, to, flags) })
}

/// Every fcntl that takes a number.
pub fn fcntl(fd: Fd, cmd: c_int, arg: c_int) -> Outcome {
    // SAFETY: the commands used here take an integer.
    outcome(unsafe { libc::fcntl(fd, cmd, arg) })
}

pub fn fcntl64(fd: Fd, cmd: c_int, arg: c_int) -> Outcome {
    // SAFETY: the commands used here take an integer.
    outcome(unsafe { glibc::fcntl64(fd, cmd, arg) })
}

pub fn under_fcntl(fd: Fd, cmd: c_int, arg: c_int) -> Outcome {
    // SAFETY: the commands used here take an integer.
    outcome(unsafe { glibc::__fcntl(fd, cmd, arg) })
}

/// By F_GETFL: the flags that all descriptors of the same open file share.
pub fn status_flags(fd: Fd) -> c_int {
    fcntl(fd, libc::F_GETFL, 0).expect("F_GETFL") as c_int
}

/// Whether O_NONBLOCK is among them.
pub fn is_nonblocking(fd: Fd) -> bool {
    status_flags(fd) & libc::O_NONBLOCK != 0
}

/// Leaves the other status flags as they are.
pub fn set_nonblocking(fd: Fd, on: bool) {
    let flags = status_flags(fd) & !libc::O_NONBLOCK;
    let flags = if on { flags | libc::O_NONBLOCK } else { flags };
    fcntl(fd, libc::F_SETFL, flags).expect("F_SETFL");
}

/// By F_SETFD: for this descriptor only.
pub fn set_cloexec(fd: Fd, on: bool) {
    fcntl(fd, libc::F_SETFD, if on { libc::FD_CLOEXEC } else { 0 }).expect("F_SETFD");
}

/// Whether the kernel knows the number.
pub fn is_open(fd: Fd) -> bool {
    fcntl(fd, libc::F_GETFD, 0).is_ok()
}

/// An ioctl that fills in one integer (FIONREAD, SIOCOUTQ, SIOCATMARK) or reads it (FIONBIO).
pub fn ioctl_int(fd: Fd, request: libc::c_ulong, start: c_int) -> Result<c_int, Errno> {
    let mut value = start;
    // SAFETY: the requests used here take a pointer to one integer.
    outcome(unsafe { libc::ioctl(fd, request, &raw mut value) }).map(|_| value)
}

/// Number of bytes that can be read.
pub fn unread(fd: Fd) -> c_int {
    ioctl_int(fd, libc::FIONREAD, -1).expect("FIONREAD")
}

/// Number of written bytes that the peer's kernel has not acknowledged.
pub fn unsent(fd: Fd) -> c_int {
    unacknowledged(fd).expect("SIOCOUTQ")
}

/// As [`unsent`], of any descriptor.
pub fn unacknowledged(fd: Fd) -> Result<c_int, super::errno::Errno> {
    ioctl_int(fd, libc::TIOCOUTQ, -1)
}

/// As (read end, write end); `flags` as for pipe2(2).
pub fn pipe(flags: c_int) -> (Fd, Fd) {
    let mut ends = [-1; 2];
    // SAFETY: the array has room for two numbers.
    outcome(unsafe { libc::pipe2(ends.as_mut_ptr(), flags) }).expect("pipe2");
    (ends[0], ends[1])
}

/// Two connected stream sockets of AF_UNIX, closed on exec.
pub fn unix_pair() -> (Fd, Fd) {
    let mut ends = [-1; 2];
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: the array has room for two numbers.
    outcome(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) }).expect("socketpair");
    (ends[0], ends[1])
}

/// Nonblocking, with this initial counter.
pub fn eventfd(start: c_uint) -> Fd {
    // SAFETY: no pointers.
    outcome(unsafe { libc::eventfd(start, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) }).expect("eventfd") as Fd
}

/// A timer that ticks every `ms` milliseconds.
pub fn ticking_timerfd(ms: i64) -> Fd {
    let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
    // SAFETY: no pointers.
    let fd = outcome(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) }).expect("timerfd") as Fd;
    let every = libc::timespec { tv_sec: ms / 1000, tv_nsec: ms % 1000 * 1_000_000 };
    let spec = libc::itimerspec { it_interval: every, it_value: every };
    // SAFETY: the new setting is a live value, null asks for no old one.
    outcome(unsafe { libc::timerfd_settime(fd, 0, &spec, std::ptr::null_mut()) }).expect("timerfd_settime");
    fd
}

/// The file of a descriptor according to the kernel, such as `socket:[123]`; `None`: it is not open.
pub fn target(fd: Fd) -> Option<String> {
    let link = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    Some(link.to_string_lossy().into_owned())
}
