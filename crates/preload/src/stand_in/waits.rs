//! poll, select and epoll by system calls.

use super::SIGSET;
use crate::errno;
use core::ffi::{c_int, c_ulong};
use libc::{epoll_event, fd_set, pollfd, sigset_t, timespec, timeval};
use sidestep_sys::{Errno, call};

/// A copy of the caller's timeout: the kernel writes to its argument, while libc's functions do not.
unsafe fn copied(timeout: *const timespec) -> Option<timespec> {
    // SAFETY: the caller's timeout, or null.
    unsafe { timeout.as_ref() }.copied()
}

fn address(timeout: &mut Option<timespec>) -> usize {
    timeout.as_mut().map_or(0, |t| &raw mut *t as usize)
}

fn from_ms(ms: c_int) -> Option<timespec> {
    (ms >= 0).then(|| timespec { tv_sec: (ms / 1000).into(), tv_nsec: (ms % 1000 * 1_000_000).into() })
}

pub unsafe extern "C" fn poll(fds: *mut pollfd, n: c_ulong, timeout: c_int) -> c_int {
    let mut timeout = from_ms(timeout);
    let args = [fds as usize, n as usize, address(&mut timeout), 0, SIGSET, 0];
    // SAFETY: the caller's list.
    errno::give(unsafe { call(libc::SYS_ppoll, args) }) as c_int
}

pub unsafe extern "C" fn ppoll(fds: *mut pollfd, n: c_ulong, timeout: *const timespec, mask: *const sigset_t) -> c_int {
    // SAFETY: the caller's timeout.
    let mut timeout = unsafe { copied(timeout) };
    let args = [fds as usize, n as usize, address(&mut timeout), mask as usize, SIGSET, 0];
    // SAFETY: the caller's list and mask.
    errno::give(unsafe { call(libc::SYS_ppoll, args) }) as c_int
}

pub unsafe extern "C" fn pselect(
    n: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's timeout.
    let mut timeout = unsafe { copied(timeout) };
    let mask = [mask as usize, SIGSET];
    let args =
        [n as usize, read as usize, write as usize, except as usize, address(&mut timeout), mask.as_ptr() as usize];
    // SAFETY: the caller's sets and mask.
    errno::give(unsafe { call(libc::SYS_pselect6, args) }) as c_int
}

pub unsafe extern "C" fn select(
    n: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the caller's timeout, or null.
    let given = unsafe { timeout.as_mut() };
    let mut left = given.as_ref().map(|t| timespec { tv_sec: t.tv_sec, tv_nsec: t.tv_usec.saturating_mul(1000) });
    let args = [n as usize, read as usize, write as usize, except as usize, address(&mut left), 0];
    // SAFETY: the caller's sets.
    let result = unsafe { call(libc::SYS_pselect6, args) };
    // On Linux select(2) writes back the time that is left.
    if let (Some(t), Some(left)) = (given, left) {
        *t = timeval { tv_sec: left.tv_sec, tv_usec: left.tv_nsec / 1000 };
    }
    errno::give(result) as c_int
}

pub unsafe extern "C" fn epoll_create(size: c_int) -> c_int {
    let made = if size > 0 {
        // SAFETY: no memory involved.
        unsafe { call(libc::SYS_epoll_create1, [0; 6]) }
    } else {
        Err(Errno(libc::EINVAL))
    };
    errno::give(made) as c_int
}

pub unsafe extern "C" fn epoll_wait(ep: c_int, events: *mut epoll_event, n: c_int, timeout: c_int) -> c_int {
    // SAFETY: the caller's buffer.
    unsafe { epoll_pwait(ep, events, n, timeout, core::ptr::null()) }
}

pub unsafe extern "C" fn epoll_pwait(
    ep: c_int,
    events: *mut epoll_event,
    n: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    let args = [ep as usize, events as usize, n as usize, timeout as usize, mask as usize, SIGSET];
    // SAFETY: the caller's buffer and mask.
    errno::give(unsafe { call(libc::SYS_epoll_pwait, args) }) as c_int
}

pub unsafe extern "C" fn epoll_pwait2(
    ep: c_int,
    events: *mut epoll_event,
    n: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let args = [ep as usize, events as usize, n as usize, timeout as usize, mask as usize, SIGSET];
    // SAFETY: the caller's buffer, timeout and mask.
    errno::give(unsafe { call(libc::SYS_epoll_pwait2, args) }) as c_int
}
