//! Socket options and queries that no crate of these tests provides.

use super::world::End;
use std::io;
use std::mem::size_of_val;
use std::os::fd::AsRawFd;

pub const SO_ZEROCOPY: libc::c_int = libc::SO_ZEROCOPY;

pub fn set(socket: &impl AsRawFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let (length, place) = (size_of_val(&value) as libc::socklen_t, std::ptr::from_ref(&value).cast());
    // SAFETY: `value` is as long as said, and lives until the call returns.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, place, length) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The errno, if the option is refused.
pub fn refused(socket: &impl AsRawFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> Option<i32> {
    set(socket, level, name, value).err().and_then(|error| error.raw_os_error())
}

/// setsockopt(TCP_ULP) by name.
pub fn set_ulp(socket: &impl AsRawFd, name: &str) -> io::Result<()> {
    let length = name.len() as libc::socklen_t;
    // SAFETY: `name` is as long as said, and lives until the call returns.
    match unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_ULP, name.as_ptr().cast(), length)
    } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn get<const N: usize>(socket: &impl AsRawFd, level: libc::c_int, name: libc::c_int) -> [u32; N] {
    let mut found = [0; N];
    let mut length = size_of_val(&found) as libc::socklen_t;
    // SAFETY: `found` has room for `length` bytes, and any bits are numbers.
    let outcome = unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, found.as_mut_ptr().cast(), &mut length) };
    assert_eq!(outcome, 0, "{}", io::Error::last_os_error());
    found
}

/// Bytes that the kernel holds for the reader, and the limit.
pub fn memory(socket: &End) -> (u32, u32) {
    let [held, room, ..] = get::<9>(&socket.0, libc::SOL_SOCKET, libc::SO_MEMINFO);
    (held, room)
}

/// FIONREAD and SIOCOUTQ.
pub fn queued(socket: &End) -> (i32, i32) {
    let ask = |request| {
        let mut found: libc::c_int = 0;
        // SAFETY: both requests write one int, for which there is room.
        let outcome = unsafe { libc::ioctl(socket.0.as_raw_fd(), request, &mut found) };
        assert_eq!(outcome, 0, "{}", io::Error::last_os_error());
        found
    };
    (ask(libc::FIONREAD), ask(libc::TIOCOUTQ))
}

/// The low half of tcpi_bytes_received, which is 128 bytes into tcp_info.
pub fn received_by_tcp(socket: &End) -> u32 {
    get::<34>(&socket.0, libc::IPPROTO_TCP, libc::TCP_INFO)[32]
}

pub fn send(socket: &End, bytes: &[u8], flags: libc::c_int) -> io::Result<usize> {
    // SAFETY: `bytes` lives until the call returns.
    done(unsafe { libc::send(socket.0.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) })
}

pub fn recv(socket: &End, bytes: &mut [u8], flags: libc::c_int) -> io::Result<usize> {
    // SAFETY: `bytes` has room for its length, and lives until the call returns.
    done(unsafe { libc::recv(socket.0.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), flags) })
}

/// splice(2) into a pipe.
pub fn splice(socket: &End, pipe: &impl AsRawFd, length: usize) -> io::Result<usize> {
    let (none, flags) = (std::ptr::null_mut(), libc::SPLICE_F_NONBLOCK);
    // SAFETY: two open descriptors, neither of which has an offset.
    done(unsafe { libc::splice(socket.0.as_raw_fd(), none, pipe.as_raw_fd(), none, length, flags) })
}

fn done(outcome: isize) -> io::Result<usize> {
    usize::try_from(outcome).map_err(|_| io::Error::last_os_error())
}

/// connect(AF_UNSPEC), which ends the connection and resets the socket.
pub fn disconnect(socket: &End) {
    // SAFETY: all zero is an address of no family.
    let nobody: libc::sockaddr = unsafe { std::mem::zeroed() };
    // SAFETY: an address of that length, which lives until the call returns.
    let outcome = unsafe { libc::connect(socket.0.as_raw_fd(), &nobody, size_of_val(&nobody) as libc::socklen_t) };
    assert_eq!(outcome, 0, "{}", io::Error::last_os_error());
}
