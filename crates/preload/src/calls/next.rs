//! The originals: the functions that the program would call without this library.
#![allow(non_snake_case)]

use super::symbols;
use super::table::table;
use core::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};
use libc::{epoll_event, fd_set, iovec, mmsghdr, msghdr, off_t, pid_t, pollfd, sigset_t, size_t, sockaddr};
use libc::{socklen_t, ssize_t, timespec, timeval};

/// Defines the function that calls an original.
macro_rules! original {
    ($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty) => {};
    ($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty, $word:tt $stand_in:path) => {
        /// # Safety
        /// libc's contract for this function.
        #[inline]
        pub unsafe fn $name($($arg: $ty),*) -> $ret {
            // SAFETY: the symbol has this signature in every libc that has it, and so has its stand-in.
            let f = unsafe {
                core::mem::transmute::<*mut c_void, unsafe extern "C" fn($($ty),*) -> $ret>(symbols::$name.get())
            };
            // SAFETY: by contract.
            unsafe { f($($arg),*) }
        }
    };
}

macro_rules! originals {
    ($($name:ident $args:tt -> $ret:ty = $hook:path $(, also $alias:ident)*
        $(, raw $number:ident)? $(, else $own:path)? $(, later $failing:path)? $(, first $before:ident)?;)*) => {
        $(original!($name $args -> $ret $(, raw $number)? $(, else $own)? $(, later $failing)?);)*
    };
}

table!(originals);

/// The sleep of a thread that waits for a doorbell. It calls libc, since it must be a cancellation point. If the time is a
/// whole number of milliseconds, epoll_pwait(2) is used, which costs the kernel less. Older libcs have no other; there a
/// fraction of a millisecond is rounded up, as in the kernel's epoll_wait(2).
///
/// # Safety
/// As for epoll_pwait2(2).
pub unsafe fn sleep_in_set(
    ep: c_int,
    events: *mut epoll_event,
    n: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: by contract a timeout, or null.
    let (ms, is_exact) = unsafe { timeout.as_ref() }.map_or((-1, true), milliseconds);
    if !is_exact && symbols::epoll_pwait2.is_there() {
        // SAFETY: by contract.
        return unsafe { epoll_pwait2(ep, events, n, timeout, mask) };
    }
    // SAFETY: by contract.
    unsafe { epoll_pwait(ep, events, n, ms, mask) }
}

/// A timeout in milliseconds, rounded up, and whether that is exact.
fn milliseconds(t: &timespec) -> (c_int, bool) {
    const NS: c_long = 1_000_000;
    let ms = t.tv_sec.saturating_mul(1000).saturating_add((t.tv_nsec + NS - 1) / NS);
    match c_int::try_from(ms) {
        Ok(ms) => (ms, t.tv_nsec % NS == 0),
        Err(_) => (c_int::MAX, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_milliseconds_that_fit_are_exact() {
        let of = |tv_sec, tv_nsec| milliseconds(&timespec { tv_sec, tv_nsec });
        assert_eq!(of(0, 0), (0, true));
        assert_eq!(of(2, 5_000_000), (2005, true));
        assert_eq!(of(0, 1), (1, false));
        assert_eq!(of(0, 1_000_001), (2, false));
        assert_eq!(of(2_147_483, 647_000_000), (c_int::MAX, true));
        assert_eq!(of(2_147_483, 648_000_000), (c_int::MAX, false));
        assert_eq!(of(i64::MAX, 999_999_999), (c_int::MAX, false));
    }
}
