//! getsockname and getpeername. While the stack gives a connection back, the kernel's socket is unconnected for some microseconds.

use super::conn;
use crate::record::flag;
use crate::stream::parked;
use crate::wait::Deadline;
use crate::{arena, errno, next, user};
use core::ffi::c_int;
use libc::{sockaddr, socklen_t};
use sidestep_sys::clock;

pub unsafe fn getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: the program's own call.
    unsafe { named(fd, address, len, || next::getsockname(fd, address, len)) }
}

pub unsafe fn getpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: the program's own call.
    unsafe { named(fd, address, len, || next::getpeername(fd, address, len)) }
}

/// Asks again until the answer is that of a connected socket, or the socket is the kernel's.
unsafe fn named(fd: c_int, address: *const sockaddr, len: *mut socklen_t, ask: impl Fn() -> c_int) -> c_int {
    let carried = conn(fd).map(arena::conn).filter(|c| c.has(flag::STACK));
    let (Some(c), Ok(room)) = (carried, user::read(len)) else { return ask() };
    let deadline = Deadline::after_ns(Some(parked::BACK_US * 1000));
    loop {
        let changes = parked::changes(c);
        let result = ask();
        if parked::is_settled(c, changes) || is_connected(result, address, room) || deadline.has_passed() {
            return result;
        }
        clock::nap_us(parked::LOOK_US);
        // SAFETY: the program's own place for the length. The kernel writes there, too.
        if unsafe { user::write(len, room) }.is_err() {
            return ask();
        }
    }
}

/// Whether the answer names an address. One that does not fit into the program's `room` counts as one.
fn is_connected(result: c_int, address: *const sockaddr, room: socklen_t) -> bool {
    if result != 0 {
        return errno::get() != libc::ENOTCONN;
    }
    let mut bytes = [0u8; size_of::<libc::sockaddr_in6>()];
    let n = (room as usize).min(bytes.len());
    if user::read_all(&mut bytes[..n], address.cast::<u8>()).is_err() {
        return true;
    }
    let ip = match c_int::from(u16::from_ne_bytes([bytes[0], bytes[1]])) {
        libc::AF_INET => 4..8,
        libc::AF_INET6 => 8..24,
        _ => return true,
    };
    ip.end > n || bytes[ip].iter().any(|byte| *byte != 0)
}
