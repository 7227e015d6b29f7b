//! connect, listen, accept, shutdown and socket options.

use super::conn;
use super::rw::address_is_good;
use crate::attach::SO_PEEK_OFF;
use crate::record::{self, Conn, flag};
use crate::stream::parked;
use crate::wait::epoll;
use crate::{
    arena, drain, errno, life::begin, life::hasty, life::numbers, life::shutdown, member, next, settings, user,
};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;
use libc::{sockaddr, socklen_t};
use sidestep_abi::Reason;
use sidestep_conn::Phase;
use sidestep_sys::{Result, tcp};

pub unsafe fn connect(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
    // AF_UNSPEC dissolves the association: the connection ends, and the descriptor stays open for another one.
    let dissolves = conn(fd).filter(|_| address_is_good(to, len) && family(to, len) == Some(libc::AF_UNSPEC));
    let dissolved = dissolves.map(|index| numbers::dissolving(index, fd));
    // SAFETY: the program's own call.
    let result = unsafe { next::connect(fd, to, len) };
    if let Some(after) = dissolved {
        after.finish();
    }
    let begun = result == 0 || matches!(errno::get(), libc::EINPROGRESS | libc::EINTR);
    if begun && settings::active() && matches!(family(to, len), Some(libc::AF_INET | libc::AF_INET6)) {
        begin::connecting(fd); // no effect on a followed descriptor: a further connect() only asks for the result of the first
    }
    result
}

/// The family, which is the first field of every address.
fn family(address: *const sockaddr, len: socklen_t) -> Option<c_int> {
    if len < 2 { None } else { user::read(address.cast::<u16>()).ok().map(c_int::from) }
}

pub unsafe fn listen(fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: the program's own call.
    let result = unsafe { next::listen(fd, backlog) };
    if result == 0 && settings::active() {
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
        begin::accepted(fd);
    }
    fd
}

pub unsafe fn shutdown(fd: c_int, how: c_int) -> c_int {
    let ours = conn(fd).filter(|_| matches!(how, libc::SHUT_RD | libc::SHUT_WR | libc::SHUT_RDWR));
    // SAFETY: the program's own call.
    let native = || unsafe { next::shutdown(fd, how) };
    let result = match ours {
        Some(index) => shutdown::shut(index, fd, how, native),
        None => native(),
    };
    // The kernel wakes everybody who waits for the socket, even if the connection has ended already.
    if let Some(index) = ours.filter(|_| result == 0 || errno::get() == libc::ENOTCONN) {
        errno::keep(|| epoll::for_each_number(index, epoll::changed));
    }
    result
}

/// linux/tcp.h
const TCP_ZEROCOPY_RECEIVE: c_int = 35;

pub unsafe fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int {
    // This one takes bytes of the stream.
    if (level, name) == (libc::IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE)
        && let Some(index) = conn(fd)
    {
        errno::keep(|| drain::to_kernel(arena::conn(index), fd, Reason::KernelFeature));
    }
    // SAFETY: the program's own call.
    let get = || unsafe { next::getsockopt(fd, level, name, value, len) };
    let result = match conn(fd).filter(|_| (level, name) == (libc::SOL_SOCKET, libc::SO_KEEPALIVE)) {
        Some(index) => parked::with_the_kernel(arena::conn(index), get),
        None => get(),
    };
    if result == 0
        && (level, name) == (libc::SOL_SOCKET, libc::SO_ERROR)
        && conn(fd).is_some_and(|c| arena::conn(c).phase.is(Phase::Broken))
    {
        // SAFETY: the program's own place for the value.
        return errno::give(unsafe { tell(value, len, libc::EPROTO) }.map(|()| 0)) as c_int;
    }
    result
}

/// Writes an int as the kernel has just done: as many of its bytes as the program has asked for.
unsafe fn tell(value: *mut c_void, len: *const socklen_t, given: c_int) -> Result<()> {
    let n = (user::read(len)? as usize).min(size_of::<c_int>());
    // SAFETY: by contract.
    unsafe { user::write_all(value.cast::<u8>(), &given.to_ne_bytes()[..n]) }
}

pub unsafe fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int {
    if let Some(index) = conn(fd)
        && let Some(reason) = needs_kernel(level, name)
        && user::read(value.cast::<u8>()).is_ok()
    {
        let c = arena::conn(index);
        errno::keep(|| match reason {
            // The option counts or skips the bytes that are unread now.
            Reason::SocketOption => drain::to_kernel(c, fd, reason),
            _ => drain::both_once_read(c, fd, reason),
        });
    }
    // SAFETY: the program's own call.
    let set = || unsafe { next::setsockopt(fd, level, name, value, len) };
    let carried = conn(fd).map(arena::conn).filter(|c| c.has(flag::STACK));
    let result = match carried.filter(|_| concerns_segments(fd, (level, name), value)) {
        Some(c) => parked::with_the_kernel(c, set),
        None => set(),
    };
    match conn(fd).filter(|_| result == 0) {
        Some(index) => note_option(arena::conn(index), fd, (level, name), value),
        None if result == 0 && timeout_name(level, name).is_some() && is_negative(value) => hasty::note(fd),
        None => {}
    }
    result
}

/// The program has set an option of a connection.
fn note_option(c: &Conn, fd: c_int, (level, name): (c_int, c_int), value: *const c_void) {
    match timeout_name(level, name) {
        Some(libc::SO_RCVTIMEO) => c.rx_timeout_us.store(timeout(fd, libc::SO_RCVTIMEO, value), Relaxed),
        Some(name) => c.tx_timeout_us.store(timeout(fd, name, value), Relaxed),
        None if (level, name) == (libc::IPPROTO_TCP, libc::TCP_INQ) => c.put(flag::TELLS_UNREAD, tcp::tells_unread(fd)),
        None => {}
    }
}

/// Of asm-generic/socket.h. In 64-bit programs the NEW names mean the same as the old ones.
const SO_RCVTIMEO_NEW: c_int = 66;
const SO_SNDTIMEO_NEW: c_int = 67;

/// The timeout that the program has just set. With a negative one the kernel never waits, though getsockopt(2) reads back 0.
fn timeout(fd: c_int, name: c_int, value: *const c_void) -> u64 {
    if is_negative(value) { record::NO_WAIT } else { tcp::timeout_us(fd, name) }
}

fn is_negative(time: *const c_void) -> bool {
    user::read(time.cast::<libc::timeval>()).is_ok_and(|t| t.tv_sec < 0)
}

/// The old name of an option that is a timeout.
fn timeout_name(level: c_int, name: c_int) -> Option<c_int> {
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO | SO_RCVTIMEO_NEW) => Some(libc::SO_RCVTIMEO),
        (libc::SOL_SOCKET, libc::SO_SNDTIMEO | SO_SNDTIMEO_NEW) => Some(libc::SO_SNDTIMEO),
        _ => None,
    }
}

/// Options that say how the stack is to carry a connection: all but some that are known to concern the program's calls only.
fn concerns_segments(fd: c_int, (level, name): (c_int, c_int), value: *const c_void) -> bool {
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_RCVBUF | libc::SO_SNDBUF | libc::SO_RCVBUFFORCE | libc::SO_SNDBUFFORCE)
        | (libc::SOL_SOCKET, libc::SO_LINGER | libc::SO_RCVLOWAT)
        | (libc::IPPROTO_TCP, libc::TCP_CORK | libc::TCP_QUICKACK | libc::TCP_NOTSENT_LOWAT | libc::TCP_INQ) => false,
        // Programs set it again and again.
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => {
            let wanted = user::read(value.cast::<c_int>()).map(|on| on != 0);
            wanted != tcp::option::<c_int>(fd, level, name).map(|on| on != 0)
        }
        _ => timeout_name(level, name).is_none(),
    }
}

/// Options that work only if the kernel carries the bytes.
fn needs_kernel(level: c_int, name: c_int) -> Option<Reason> {
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_RCVLOWAT | libc::SO_ATTACH_FILTER | libc::SO_ATTACH_BPF | SO_PEEK_OFF) => {
            Some(Reason::SocketOption)
        }
        (libc::SOL_SOCKET, name) if tcp::TIMESTAMPS.contains(&name) => Some(Reason::SocketOption),
        (libc::SOL_SOCKET, libc::SO_ZEROCOPY) | (libc::IPPROTO_TCP, libc::TCP_ULP | libc::TCP_REPAIR) => {
            Some(Reason::KernelFeature)
        }
        _ => None,
    }
}
