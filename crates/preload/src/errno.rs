//! Results as C expects them: a number, or -1 with errno.

use crate::thread;
use sidestep_sys::{Errno, Result};

unsafe extern "C" {
    /// __errno_location() of glibc and musl.
    static ss_errno: Option<extern "C" fn() -> *mut i32>;
}

/// Where the calling thread's errno is.
#[inline]
fn location() -> *mut i32 {
    // SAFETY: a constant that the dynamic linker has filled in.
    match unsafe { ss_errno } {
        Some(ask) => ask(),
        None => thread::own_errno(),
    }
}

/// The calling thread's errno.
pub fn get() -> i32 {
    // SAFETY: a pointer to the thread's errno.
    unsafe { *location() }
}

pub fn set(value: i32) {
    // SAFETY: as above.
    unsafe { *location() = value };
}

/// A result as the return value of a libc function.
#[inline]
pub fn give(result: Result<usize>) -> isize {
    match result {
        Ok(n) => n as isize,
        Err(Errno(e)) => {
            set(e);
            -1
        }
    }
}

/// The return value of a libc function as a result.
#[inline]
pub fn check(value: isize) -> Result<usize> {
    if value >= 0 { Ok(value as usize) } else { Err(Errno(get())) }
}

/// Runs something that may disturb errno, and restores it.
pub fn keep<T>(work: impl FnOnce() -> T) -> T {
    let saved = get();
    let result = work();
    set(saved);
    result
}
