//! poll, select and epoll in all their forms: timeouts become nanoseconds, lists become slices.

use super::rw::check_room;
use crate::fdtable::{self, Kind};
use crate::wait::{epoll, poll as polling, select::Sets};
use crate::{arena, life, next};
use core::ffi::{c_int, c_ulong};
use libc::{epoll_event, fd_set, pollfd, sigset_t, size_t, timespec, timeval};
use sidestep_abi::Reason;

fn from_ms(ms: c_int) -> Option<u64> {
    (ms >= 0).then(|| ms as u64 * 1_000_000)
}

/// None: null, that is for ever.
unsafe fn from_spec(ts: *const timespec) -> Option<u64> {
    // SAFETY: the program's own pointer, or null.
    unsafe { ts.as_ref() }.map(|t| (t.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(t.tv_nsec as u64))
}

/// The list as a slice; None: nothing that the kernel would accept.
unsafe fn list<'a>(fds: *mut pollfd, n: c_ulong) -> Option<&'a mut [pollfd]> {
    if fds.is_null() || n > fdtable::MAX_FD as c_ulong {
        return None;
    }
    // SAFETY: the program vouches for `n` entries.
    Some(unsafe { core::slice::from_raw_parts_mut(fds, n as usize) })
}

pub unsafe fn poll(fds: *mut pollfd, n: c_ulong, timeout: c_int) -> c_int {
    // SAFETY: the program's own call.
    let native = || unsafe { next::poll(fds, n, timeout) };
    // SAFETY: the program's own list.
    match unsafe { list(fds, n) } {
        Some(l) => polling::poll(l, from_ms(timeout), core::ptr::null(), native),
        None => native(),
    }
}

pub unsafe fn poll_chk(fds: *mut pollfd, n: c_ulong, timeout: c_int, room: size_t) -> c_int {
    check_room(n as usize * size_of::<pollfd>(), room);
    // SAFETY: the same contract.
    unsafe { poll(fds, n, timeout) }
}

pub unsafe fn ppoll(fds: *mut pollfd, n: c_ulong, timeout: *const timespec, mask: *const sigset_t) -> c_int {
    // SAFETY: the program's own call.
    let native = || unsafe { next::ppoll(fds, n, timeout, mask) };
    // SAFETY: the program's own list and timeout.
    match unsafe { (list(fds, n), from_spec(timeout)) } {
        (Some(l), ns) => polling::poll(l, ns, mask, native),
        (None, _) => native(),
    }
}

pub unsafe fn ppoll_chk(
    fds: *mut pollfd,
    n: c_ulong,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: size_t,
) -> c_int {
    check_room(n as usize * size_of::<pollfd>(), room);
    // SAFETY: the same contract.
    unsafe { ppoll(fds, n, timeout, mask) }
}

pub unsafe fn select(n: c_int, r: *mut fd_set, w: *mut fd_set, e: *mut fd_set, timeout: *mut timeval) -> c_int {
    let sets = Sets { nfds: n, read: r, write: w, except: e };
    if !sets.concern_us() {
        // SAFETY: the program's own call.
        return unsafe { next::select(n, r, w, e, timeout) };
    }
    // SAFETY: the program's own pointer, or null.
    let limit = unsafe { timeout.as_mut() };
    let ns = limit.as_ref().map(|t| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1000);
    let began = sidestep_sys::clock::monotonic_ns();
    let result = sets.select(ns, core::ptr::null());
    // Linux tells how much of the time was left.
    if let (Some(t), Some(ns)) = (limit, ns) {
        let left = ns.saturating_sub(sidestep_sys::clock::monotonic_ns() - began);
        t.tv_sec = (left / 1_000_000_000) as i64;
        t.tv_usec = (left % 1_000_000_000 / 1000) as i64;
    }
    result
}

pub unsafe fn pselect(
    n: c_int,
    r: *mut fd_set,
    w: *mut fd_set,
    e: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let sets = Sets { nfds: n, read: r, write: w, except: e };
    if !sets.concern_us() {
        // SAFETY: the program's own call.
        return unsafe { next::pselect(n, r, w, e, timeout, mask) };
    }
    // SAFETY: the program's own timeout.
    sets.select(unsafe { from_spec(timeout) }, mask)
}

pub unsafe fn epoll_create(size: c_int) -> c_int {
    // SAFETY: the program's own call.
    let fd = unsafe { next::epoll_create(size) };
    epoll::created(fd);
    fd
}

pub unsafe fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: the program's own call.
    let fd = unsafe { next::epoll_create1(flags) };
    epoll::created(fd);
    fd
}

pub unsafe fn epoll_ctl(ep: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    // SAFETY: the program's own call.
    let native = || unsafe { next::epoll_ctl(ep, op, fd, event) };
    match fdtable::get(ep) {
        Kind::Set(index) => epoll::ctl(index, op, fd, event, native),
        _ => {
            // A set that was made where we could not see: its waits cannot hear doorbells.
            if let Kind::Conn(c) = fdtable::get(fd) {
                life::both_to_kernel(arena::conn(c), fd, Reason::Foreign);
            }
            native()
        }
    }
}

/// The buffer as a slice; None: the kernel is to say what is wrong with it.
unsafe fn buffer<'a>(events: *mut epoll_event, n: c_int) -> Option<&'a mut [epoll_event]> {
    if events.is_null() || n <= 0 {
        return None;
    }
    // SAFETY: the program vouches for `n` entries.
    Some(unsafe { core::slice::from_raw_parts_mut(events, n as usize) })
}

fn wait(
    ep: c_int,
    events: Option<&mut [epoll_event]>,
    ns: Option<u64>,
    mask: *const sigset_t,
    native: impl FnOnce() -> c_int,
) -> c_int {
    match (fdtable::get(ep), events) {
        (Kind::Set(index), Some(out)) => epoll::wait(index, out, ns, mask, native),
        _ => native(),
    }
}

pub unsafe fn epoll_wait(ep: c_int, events: *mut epoll_event, n: c_int, timeout: c_int) -> c_int {
    // SAFETY: the program's own call and buffer.
    unsafe {
        wait(ep, buffer(events, n), from_ms(timeout), core::ptr::null(), || next::epoll_wait(ep, events, n, timeout))
    }
}

pub unsafe fn epoll_pwait(
    ep: c_int,
    events: *mut epoll_event,
    n: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's own call and buffer.
    unsafe { wait(ep, buffer(events, n), from_ms(timeout), mask, || next::epoll_pwait(ep, events, n, timeout, mask)) }
}

pub unsafe fn epoll_pwait2(
    ep: c_int,
    events: *mut epoll_event,
    n: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's own call, buffer and timeout.
    unsafe {
        wait(ep, buffer(events, n), from_spec(timeout), mask, || next::epoll_pwait2(ep, events, n, timeout, mask))
    }
}
