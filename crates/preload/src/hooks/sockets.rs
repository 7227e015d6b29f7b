//! connect, listen, accept, shutdown and socket options.

use super::conn;
use crate::record::flag;
use crate::{arena, errno, life, member, next};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;
use libc::{sockaddr, socklen_t};
use sidestep_abi::Reason;
use sidestep_sys::tcp;

pub unsafe fn connect(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: the program's own pointer; an address starts with its family.
    let family = if to.is_null() || len < 2 { -1 } else { i32::from(unsafe { (*to).sa_family }) };
    // Dissolving the association ends the connection; the number stays open for another.
    let dissolved = (family == libc::AF_UNSPEC).then(|| life::closing(fd));
    // SAFETY: the program's own call.
    let result = unsafe { next::connect(fd, to, len) };
    if let Some(after) = dissolved {
        after.finish();
    }
    let begun = result == 0 || matches!(errno::get(), libc::EINPROGRESS | libc::EINTR);
    if begun && (family == libc::AF_INET || family == libc::AF_INET6) {
        life::open(fd); // unless followed already: a further connect() asks how the first one went
    }
    result
}

pub unsafe fn listen(fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: the program's own call.
    let result = unsafe { next::listen(fd, backlog) };
    if result == 0 {
        errno::keep(|| {
            if tcp::is_tcp(fd) {
                member::stay();
            }
        });
    }
    result
}

pub unsafe fn accept(fd: c_int, from: *mut sockaddr, len: *mut socklen_t) -> c_int {
    member::check();
    // SAFETY: the program's own call.
    accepted(unsafe { next::accept(fd, from, len) })
}

pub unsafe fn accept4(fd: c_int, from: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int {
    member::check();
    // SAFETY: the program's own call.
    accepted(unsafe { next::accept4(fd, from, len, flags) })
}

fn accepted(fd: c_int) -> c_int {
    if fd >= 0 {
        life::open(fd);
    }
    fd
}

pub unsafe fn shutdown(fd: c_int, how: c_int) -> c_int {
    if let Some(index) = conn(fd) {
        life::shutting(arena::conn(index), fd, how);
    }
    // SAFETY: the program's own call.
    unsafe { next::shutdown(fd, how) }
}

pub unsafe fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int {
    // SAFETY: the program's own call.
    let result = unsafe { next::getsockopt(fd, level, name, value, len) };
    if result == 0
        && (level, name) == (libc::SOL_SOCKET, libc::SO_ERROR)
        && conn(fd).is_some_and(|c| arena::conn(c).has(flag::BROKEN))
    {
        // SAFETY: the kernel has just written an int there.
        unsafe { *value.cast::<c_int>() = libc::EPROTO };
    }
    result
}

pub unsafe fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int {
    if let Some(index) = conn(fd)
        && let Some(reason) = needs_kernel(level, name)
    {
        life::both_to_kernel(arena::conn(index), fd, reason);
    }
    // SAFETY: the program's own call.
    let result = unsafe { next::setsockopt(fd, level, name, value, len) };
    if let Some(index) = conn(fd)
        && result == 0
        && level == libc::SOL_SOCKET
    {
        let c = arena::conn(index);
        match name {
            libc::SO_RCVTIMEO => c.rx_timeout_us.store(sidestep_sys::tcp::timeout_us(fd, name), Relaxed),
            libc::SO_SNDTIMEO => c.tx_timeout_us.store(sidestep_sys::tcp::timeout_us(fd, name), Relaxed),
            _ => {}
        }
    }
    result
}

/// Options with which the kernel must see the bytes.
fn needs_kernel(level: c_int, name: c_int) -> Option<Reason> {
    const SO_PEEK_OFF: c_int = 42;
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_RCVLOWAT | libc::SO_ATTACH_FILTER | libc::SO_ATTACH_BPF | SO_PEEK_OFF) => {
            Some(Reason::SocketOption)
        }
        (libc::SOL_SOCKET, libc::SO_ZEROCOPY) | (libc::IPPROTO_TCP, libc::TCP_ULP | libc::TCP_REPAIR) => {
            Some(Reason::KernelFeature)
        }
        _ => None,
    }
}
