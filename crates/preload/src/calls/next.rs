//! The originals: what the program would have called without us.
#![allow(non_snake_case)]

use super::symbols;
use super::table::table;
use core::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};
use libc::{epoll_event, fd_set, iovec, mmsghdr, msghdr, off_t, pid_t, pollfd, sigset_t, size_t, sockaddr};
use libc::{socklen_t, ssize_t, timespec, timeval};

/// The function behind us.
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
        $(, raw $number:ident)? $(, else $own:path)? $(, later $failing:path)?;)*) => {
        $(original!($name $args -> $ret $(, raw $number)? $(, else $own)? $(, later $failing)?);)*
    };
}

table!(originals);

/// The wait of a thread that holds doorbells, in a function of libc's: it is a cancellation point. Older libcs have only
/// the one that counts milliseconds; it may wait for a part of one too long, as the kernel's epoll_wait(2) does.
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
    if symbols::epoll_pwait2.is_there() {
        // SAFETY: by contract.
        return unsafe { epoll_pwait2(ep, events, n, timeout, mask) };
    }
    // SAFETY: by contract a timeout, or null.
    let ms =
        unsafe { timeout.as_ref() }.map_or(-1, |t| t.tv_sec.saturating_mul(1000) + (t.tv_nsec + 999_999) / 1_000_000);
    // SAFETY: by contract.
    unsafe { epoll_pwait(ep, events, n, ms.min(c_int::MAX.into()) as c_int, mask) }
}
