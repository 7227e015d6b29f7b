//! The program's memory. Every pointer that a call was given may be bad: all reads and writes come here, and answer
//! EFAULT as the kernel does.
//!
//! The copy itself is a plain one; a fault in it is caught by a signal handler (`handlers`), which is installed when the
//! first byte is to be copied. A thread that blocks the signals of faults would be ended by such a fault: `faults` lets
//! them through.

use crate::handlers;
use crate::thread::{self, Faults};
use core::mem::MaybeUninit;
use sidestep_sys::{Errno, Result, arch, signal};

/// Data of the program that can be anything: every pattern of bytes is a value.
///
/// # Safety
/// Only for such types.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    // SAFETY: integers, pointers, and structs of them.
    ($($t:ty),* $(,)?) => { $(unsafe impl Plain for $t {})* };
}

plain!(u8, u16, i32, u32, i64, u64, usize, libc::iovec, libc::pollfd, libc::epoll_event, libc::timespec, libc::timeval);
plain!(libc::msghdr, libc::mmsghdr, libc::cmsghdr, signal::Action);

// SAFETY: as many of them.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}
// SAFETY: a pointer is only a number until somebody follows it.
unsafe impl<T> Plain for *const T {}
// SAFETY: as above.
unsafe impl<T> Plain for *mut T {}

const BAD: Errno = Errno(libc::EFAULT);

/// Reads what a pointer of the program points to.
#[inline]
pub fn read<T: Plain>(from: *const T) -> Result<T> {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: `value` has room for one T, and is ours.
    if unsafe { copy(value.as_mut_ptr().cast(), from.cast(), size_of::<T>()) } {
        // SAFETY: all bytes have been copied, and any are a value.
        Ok(unsafe { value.assume_init() })
    } else {
        Err(BAD)
    }
}

/// Reads the array that a pointer of the program points to.
#[inline]
pub fn read_all<T: Plain>(to: &mut [T], from: *const T) -> Result<()> {
    // SAFETY: `to` is ours, and any bytes are values.
    if unsafe { copy(to.as_mut_ptr().cast(), from.cast(), size_of_val(to)) } { Ok(()) } else { Err(BAD) }
}

/// Writes where a pointer of the program points to.
///
/// # Safety
/// The program must have named this as the place for the answer of its call.
#[inline]
pub unsafe fn write<T: Plain>(to: *mut T, value: T) -> Result<()> {
    // SAFETY: by contract.
    unsafe { write_all(to, &[value]) }
}

/// The same for an array.
///
/// # Safety
/// As for [`write`].
#[inline]
pub unsafe fn write_all<T: Plain>(to: *mut T, from: &[T]) -> Result<()> {
    // SAFETY: by contract.
    if unsafe { copy(to.cast(), from.as_ptr().cast(), size_of_val(from)) } { Ok(()) } else { Err(BAD) }
}

/// Copies bytes of the program to us, or of ours to the program. False: its memory is bad; some may have been copied.
///
/// # Safety
/// One range must be memory of ours of that length. If the other is written to, the program must have named it as the
/// place for what it gets.
#[inline]
#[must_use]
pub unsafe fn copy(to: *mut u8, from: *const u8, len: usize) -> bool {
    let faults = &thread::parts().faults;
    // SAFETY: by contract.
    unsafe { if faults.reach() { arch::copy(to, from, len) } else { first_copy(faults, to, from, len) } }
}

/// The same in a thread that the signals of faults do not reach yet, as far as is known.
#[cold]
unsafe fn first_copy(faults: &Faults, to: *mut u8, from: *const u8, len: usize) -> bool {
    handlers::install();
    // SAFETY: by contract.
    unsafe { faults.copy(to, from, len) }
}
