//! read, write, recv, send and their kin: all become one receive or one send.

use super::conn;
use crate::io::{iov, recv as receive, send as transmit};
use crate::next;
use core::ffi::{c_int, c_void};
use libc::{iovec, off_t, size_t, sockaddr, socklen_t, ssize_t};

unsafe extern "C" {
    fn __chk_fail() -> !;
}

/// What _FORTIFY_SOURCE checks.
pub fn check_room(n: size_t, room: size_t) {
    if n > room {
        // SAFETY: libc's own end for an overflow.
        unsafe { __chk_fail() }
    }
}

/// A vector of the program as a slice. Empty if it is none, or one that the kernel will refuse.
pub unsafe fn vector<'a>(iov: *const iovec, n: usize) -> &'a [iovec] {
    if iov.is_null() || n > 1024 {
        return &[];
    }
    // SAFETY: the program vouches for `n` iovecs.
    unsafe { core::slice::from_raw_parts(iov, n) }
}

pub unsafe fn read(fd: c_int, buf: *mut c_void, n: size_t) -> ssize_t {
    // SAFETY: the program's own call.
    let native = || unsafe { next::read(fd, buf, n) };
    match conn(fd) {
        // read(2) of nothing returns at once, unlike recv(2) of nothing.
        Some(c) if n > 0 => receive::recv(c, fd, &iov::one(buf, n), 0, native),
        _ => native(),
    }
}

pub unsafe fn read_chk(fd: c_int, buf: *mut c_void, n: size_t, room: size_t) -> ssize_t {
    check_room(n, room);
    // SAFETY: the same contract.
    unsafe { read(fd, buf, n) }
}

pub unsafe fn readv(fd: c_int, iov: *const iovec, n: c_int) -> ssize_t {
    // SAFETY: the program's own call.
    let native = || unsafe { next::readv(fd, iov, n) };
    match conn(fd) {
        // SAFETY: the program's own vector.
        Some(c) if n > 0 && n <= 1024 && iov::total(unsafe { vector(iov, n as usize) }) > 0 => {
            // SAFETY: as above.
            receive::recv(c, fd, unsafe { vector(iov, n as usize) }, 0, native)
        }
        _ => native(),
    }
}

/// RWF_NOWAIT of linux/fs.h.
const NOWAIT: c_int = 8;

pub unsafe fn preadv2(fd: c_int, iov: *const iovec, n: c_int, at: off_t, flags: c_int) -> ssize_t {
    // SAFETY: the program's own call.
    let native = || unsafe { next::preadv2(fd, iov, n, at, flags) };
    match conn(fd) {
        Some(c) if at == -1 && flags & !NOWAIT == 0 && (0..=1024).contains(&n) => {
            let wait = if flags & NOWAIT != 0 { libc::MSG_DONTWAIT } else { 0 };
            // SAFETY: the program's own vector.
            receive::recv(c, fd, unsafe { vector(iov, n as usize) }, wait, native)
        }
        _ => native(),
    }
}

pub unsafe fn recv(fd: c_int, buf: *mut c_void, n: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the program's own call.
    let native = || unsafe { next::recv(fd, buf, n, flags) };
    match conn(fd) {
        None => native(),
        Some(c) => receive::recv(c, fd, &iov::one(buf, n), flags, native),
    }
}

pub unsafe fn recv_chk(fd: c_int, buf: *mut c_void, n: size_t, room: size_t, flags: c_int) -> ssize_t {
    check_room(n, room);
    // SAFETY: the same contract.
    unsafe { recv(fd, buf, n, flags) }
}

pub unsafe fn recvfrom(
    fd: c_int,
    buf: *mut c_void,
    n: size_t,
    flags: c_int,
    from: *mut sockaddr,
    len: *mut socklen_t,
) -> ssize_t {
    // SAFETY: the program's own call.
    let native = || unsafe { next::recvfrom(fd, buf, n, flags, from, len) };
    let Some(c) = conn(fd) else { return native() };
    let got = receive::recv(c, fd, &iov::one(buf, n), flags, native);
    // TCP has no address to give: the kernel leaves the buffer alone and says so in the length.
    if got >= 0 && !from.is_null() && !len.is_null() {
        // SAFETY: the program's own pointer.
        unsafe { *len = 0 };
    }
    got
}

pub unsafe fn recvfrom_chk(
    fd: c_int,
    buf: *mut c_void,
    n: size_t,
    room: size_t,
    flags: c_int,
    from: *mut sockaddr,
    len: *mut socklen_t,
) -> ssize_t {
    check_room(n, room);
    // SAFETY: the same contract.
    unsafe { recvfrom(fd, buf, n, flags, from, len) }
}

pub unsafe fn write(fd: c_int, buf: *const c_void, n: size_t) -> ssize_t {
    // SAFETY: the program's own call.
    let native = || unsafe { next::write(fd, buf, n) };
    match conn(fd) {
        None => native(),
        Some(c) => transmit::send(c, fd, &mut transmit::Buffers(&iov::one(buf, n)), 0, native),
    }
}

pub unsafe fn writev(fd: c_int, iov: *const iovec, n: c_int) -> ssize_t {
    // SAFETY: the program's own call.
    let native = || unsafe { next::writev(fd, iov, n) };
    match conn(fd) {
        Some(c) if (0..=1024).contains(&n) => {
            // SAFETY: the program's own vector.
            let mut buffers = transmit::Buffers(unsafe { vector(iov, n as usize) });
            transmit::send(c, fd, &mut buffers, 0, native)
        }
        _ => native(),
    }
}

pub unsafe fn pwritev2(fd: c_int, iov: *const iovec, n: c_int, at: off_t, flags: c_int) -> ssize_t {
    // SAFETY: the program's own call.
    let native = || unsafe { next::pwritev2(fd, iov, n, at, flags) };
    match conn(fd) {
        Some(c) if at == -1 && flags & !NOWAIT == 0 && (0..=1024).contains(&n) => {
            let wait = if flags & NOWAIT != 0 { libc::MSG_DONTWAIT } else { 0 };
            // SAFETY: the program's own vector.
            let mut buffers = transmit::Buffers(unsafe { vector(iov, n as usize) });
            transmit::send(c, fd, &mut buffers, wait, native)
        }
        _ => native(),
    }
}

pub unsafe fn send(fd: c_int, buf: *const c_void, n: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the program's own call.
    let native = || unsafe { next::send(fd, buf, n, flags) };
    match conn(fd) {
        None => native(),
        Some(c) => transmit::send(c, fd, &mut transmit::Buffers(&iov::one(buf, n)), flags, native),
    }
}

pub unsafe fn sendto(
    fd: c_int,
    buf: *const c_void,
    n: size_t,
    flags: c_int,
    to: *const sockaddr,
    len: socklen_t,
) -> ssize_t {
    // SAFETY: the program's own call.
    let native = || unsafe { next::sendto(fd, buf, n, flags, to, len) };
    match conn(fd) {
        None => native(),
        // On a connected stream the kernel ignores the address.
        Some(c) => transmit::send(c, fd, &mut transmit::Buffers(&iov::one(buf, n)), flags, native),
    }
}
