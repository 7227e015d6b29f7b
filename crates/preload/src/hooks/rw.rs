//! read, write, recv, send and their kin: all call one receive or one send.

use super::conn;
use crate::io::{past_us, recv, send as transmit};
use crate::stream::iov::{self, Destination};
use crate::stream::source::Buffers;
use crate::{arena, drain, errno, host, next, user};
use core::ffi::{c_int, c_void};
use libc::{iovec, off_t, size_t, sockaddr, socklen_t, ssize_t};
use sidestep_abi::Reason;
use sidestep_sys::{Errno, Result, tcp};

/// The check of _FORTIFY_SOURCE: aborts if `n` is more than the buffer's `room`.
pub fn check_room(n: size_t, room: size_t) {
    if n > room {
        host::overflow()
    }
}

/// Most vectors of one call (UIO_MAXIOV).
pub const MOST_VECTORS: usize = 1024;

/// The number of vectors. None: readv(2) and its kin refuse it, or it is 0.
fn vectors(n: c_int) -> Option<usize> {
    usize::try_from(n).ok().filter(|n| (1..=MOST_VECTORS).contains(n))
}

/// The return value of a call whose arguments were checked first.
fn flat(result: Result<ssize_t>) -> ssize_t {
    result.unwrap_or_else(|e| errno::give(Err(e)))
}

/// Receives into these buffers.
///
/// # Safety
/// The program must have named them as the place for what its call receives.
unsafe fn receive(c: u32, fd: c_int, iov: &[iovec], flags: c_int, native: impl FnOnce() -> ssize_t) -> ssize_t {
    // SAFETY: by contract.
    recv::recv(c, fd, unsafe { Destination::new(iov) }, flags, native)
}

pub unsafe fn read(fd: c_int, buf: *mut c_void, n: size_t) -> ssize_t {
    // SAFETY: the program's own call.
    let native = || unsafe { next::read(fd, buf, n) };
    match conn(fd) {
        // read(2) of 0 bytes returns at once, unlike recv(2) of 0 bytes.
        // SAFETY: the buffer that the program reads into.
        Some(c) if n > 0 => flat(iov::of_file(buf, n).map(|iov| unsafe { receive(c, fd, &iov, 0, native) })),
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
    match (conn(fd), vectors(n)) {
        // SAFETY: the vector that the program reads into.
        (Some(c), Some(n)) => unsafe { receive_vector(c, fd, (iov, n), 0, native) },
        _ => native(),
    }
}

/// readv(2) of 0 bytes returns at once.
///
/// # Safety
/// As for [`receive`].
unsafe fn receive_vector(
    c: u32,
    fd: c_int,
    (iov, n): (*const iovec, usize),
    flags: c_int,
    native: impl FnOnce() -> ssize_t,
) -> ssize_t {
    flat(iov::with_vector(iov, n, |iov| {
        // SAFETY: by contract.
        if iov::total(iov) == 0 { native() } else { unsafe { receive(c, fd, iov, flags, native) } }
    }))
}

/// What preadv2(2) or pwritev2(2) are called for.
enum Asked {
    /// Position -1, as on a socket, with these flags of recv(2) or send(2).
    Stream(c_int),
    /// Arguments that the kernel refuses without moving a byte.
    Nothing,
    /// Flags that only the kernel can serve.
    Unknown,
}

/// Flags without a meaning for sockets: RWF_HIPRI, RWF_DSYNC and RWF_SYNC of linux/fs.h.
const IGNORED: c_int = 1 | 2 | 4;
const RWF_NOWAIT: c_int = 8;

fn asked(at: off_t, flags: c_int) -> Asked {
    match flags & !(IGNORED | RWF_NOWAIT) {
        _ if at != -1 => Asked::Nothing, // ESPIPE or EINVAL
        0 if flags & RWF_NOWAIT != 0 => Asked::Stream(libc::MSG_DONTWAIT),
        0 => Asked::Stream(0),
        _ if tcp::refuses_flags(flags) => Asked::Nothing, // EOPNOTSUPP or EINVAL
        _ => Asked::Unknown,
    }
}

pub unsafe fn preadv2(fd: c_int, iov: *const iovec, n: c_int, at: off_t, flags: c_int) -> ssize_t {
    // SAFETY: the program's own call.
    receive_at(fd, (iov, n), at, flags, || unsafe { next::preadv2(fd, iov, n, at, flags) })
}

/// preadv2(2), however it is called.
pub fn receive_at(
    fd: c_int,
    (iov, n): (*const iovec, c_int),
    at: off_t,
    flags: c_int,
    native: impl FnOnce() -> ssize_t,
) -> ssize_t {
    let (Some(c), Some(n)) = (conn(fd), vectors(n)) else { return native() };
    match asked(at, flags) {
        // SAFETY: the vector that the program reads into.
        Asked::Stream(flags) => unsafe { receive_vector(c, fd, (iov, n), flags, native) },
        Asked::Nothing => native(),
        Asked::Unknown => {
            errno::keep(|| drain::before_native_receive(arena::conn(c), fd, Reason::KernelFeature));
            let got = native();
            past_us::received(arena::conn(c), got);
            got
        }
    }
}

pub unsafe fn recv(fd: c_int, buf: *mut c_void, n: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the program's own call.
    let native = || unsafe { next::recv(fd, buf, n, flags) };
    match conn(fd) {
        None => native(),
        // SAFETY: the buffer that the program receives into.
        Some(c) => flat(iov::of_socket(buf, n).map(|iov| unsafe { receive(c, fd, &iov, flags, native) })),
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
    let mut by_kernel = false;
    let native = || {
        by_kernel = true;
        native()
    };
    // SAFETY: the buffer that the program receives into.
    let got = flat(iov::of_socket(buf, n).map(|iov| unsafe { receive(c, fd, &iov, flags, native) }));
    if got < 0 || by_kernel || from.is_null() {
        return got;
    }
    // SAFETY: the program's own place for the length.
    flat(unsafe { give_no_address(len) }.map(|()| got))
}

/// TCP gives no address: the kernel leaves the buffer alone and sets the length to 0.
unsafe fn give_no_address(len: *mut socklen_t) -> Result<()> {
    if user::read(len.cast_const())? > i32::MAX as u32 {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: by contract.
    unsafe { user::write(len, 0) }
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
        Some(c) => flat(iov::of_file(buf, n).map(|iov| transmit::send(c, fd, &mut Buffers(&iov), 0, native))),
    }
}

pub unsafe fn writev(fd: c_int, iov: *const iovec, n: c_int) -> ssize_t {
    // SAFETY: the program's own call.
    let native = || unsafe { next::writev(fd, iov, n) };
    match (conn(fd), vectors(n)) {
        (Some(c), Some(n)) => send_vector(c, fd, (iov, n), 0, native),
        _ => native(),
    }
}

/// writev(2) of 0 bytes returns at once, without a look at the socket, unlike write(2) of 0 bytes.
fn send_vector(
    c: u32,
    fd: c_int,
    (iov, n): (*const iovec, usize),
    flags: c_int,
    native: impl FnOnce() -> ssize_t,
) -> ssize_t {
    flat(iov::with_vector(iov, n, |iov| {
        if iov::total(iov) == 0 { native() } else { transmit::send(c, fd, &mut Buffers(iov), flags, native) }
    }))
}

pub unsafe fn pwritev2(fd: c_int, iov: *const iovec, n: c_int, at: off_t, flags: c_int) -> ssize_t {
    // SAFETY: the program's own call.
    send_at(fd, (iov, n), at, flags, || unsafe { next::pwritev2(fd, iov, n, at, flags) })
}

/// pwritev2(2), however it is called.
pub fn send_at(
    fd: c_int,
    (iov, n): (*const iovec, c_int),
    at: off_t,
    flags: c_int,
    native: impl FnOnce() -> ssize_t,
) -> ssize_t {
    let (Some(c), Some(n)) = (conn(fd), vectors(n)) else { return native() };
    match asked(at, flags) {
        Asked::Stream(flags) => send_vector(c, fd, (iov, n), flags, native),
        Asked::Nothing => native(),
        Asked::Unknown => transmit::by_kernel(arena::conn(c), fd, Reason::KernelFeature, 0, native, |sent| sent == 0),
    }
}

pub unsafe fn send(fd: c_int, buf: *const c_void, n: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the program's own call.
    let native = || unsafe { next::send(fd, buf, n, flags) };
    match conn(fd) {
        None => native(),
        Some(c) => send_buffer(c, fd, (buf, n), flags, native),
    }
}

fn send_buffer(
    c: u32,
    fd: c_int,
    (buf, n): (*const c_void, size_t),
    flags: c_int,
    native: impl FnOnce() -> ssize_t,
) -> ssize_t {
    flat(iov::of_socket(buf, n).map(|iov| transmit::send(c, fd, &mut Buffers(&iov), flags, native)))
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
        // On a connected stream the kernel reads the address and ignores it.
        Some(c) if to.is_null() || address_is_good(to, len) => send_buffer(c, fd, (buf, n), flags, native),
        _ => native(),
    }
}

/// Whether the kernel can read this address. A bad address fails the call before anything else is checked.
pub fn address_is_good(address: *const sockaddr, len: socklen_t) -> bool {
    let mut room = [0u8; size_of::<libc::sockaddr_storage>()];
    let room = room.get_mut(..len as usize);
    room.is_some_and(|room| user::read_all(room, address.cast()).is_ok())
}
