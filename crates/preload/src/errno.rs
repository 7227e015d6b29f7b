//! Results as C wants them: a number, or -1 with errno.

use sidestep_sys::{Errno, Result};

unsafe extern "C" {
    fn __errno_location() -> *mut i32;
}

/// The calling thread's errno.
pub fn get() -> i32 {
    // SAFETY: libc's own pointer to the thread's errno.
    unsafe { *__errno_location() }
}

pub fn set(value: i32) {
    // SAFETY: as above.
    unsafe { *__errno_location() = value };
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
pub fn take(value: isize) -> Result<usize> {
    if value >= 0 { Ok(value as usize) } else { Err(Errno(get())) }
}

/// Runs something that may disturb errno, and restores it.
pub fn keep<T>(work: impl FnOnce() -> T) -> T {
    let saved = get();
    let result = work();
    set(saved);
    result
}
