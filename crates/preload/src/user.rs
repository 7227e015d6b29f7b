//! The program's memory. Any pointer of a call may be bad, so every read and write comes here, and returns EFAULT as the kernel
//! does.
//!
//! The copy itself is a plain one. A signal handler (`handlers`), installed before the first copy, catches a fault in it. If a
//! thread blocks the signals of faults, such a fault would end the process, so `faults` unblocks them.

use crate::thread::{self, Faults};
use crate::{handlers, settings};
use core::mem::MaybeUninit;
use sidestep_sys::{Errno, Result, arch, signal};

/// Data of the program: every pattern of bytes must be a valid value.
///
/// # Safety
/// Every pattern of bytes must be a valid value of the type.
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

/// Reads a value at a pointer of the program.
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

/// Reads an array at a pointer of the program.
#[inline]
pub fn read_all<T: Plain>(to: &mut [T], from: *const T) -> Result<()> {
    // SAFETY: `to` is ours, and any bytes are values.
    if unsafe { copy(to.as_mut_ptr().cast(), from.cast(), size_of_val(to)) } { Ok(()) } else { Err(BAD) }
}

/// Writes a value at a pointer of the program.
///
/// # Safety
/// The program must have named this as the place for the answer of its call.
#[inline]
pub unsafe fn write<T: Plain>(to: *mut T, value: T) -> Result<()> {
    // SAFETY: by contract.
    unsafe { write_all(to, &[value]) }
}

/// Writes an array at a pointer of the program.
///
/// # Safety
/// As for [`write`].
#[inline]
pub unsafe fn write_all<T: Plain>(to: *mut T, from: &[T]) -> Result<()> {
    // SAFETY: by contract.
    if unsafe { copy(to.cast(), from.as_ptr().cast(), size_of_val(from)) } { Ok(()) } else { Err(BAD) }
}

/// Copies bytes from the program to us, or from us to the program. False: the program's memory is bad; some bytes may have been
/// copied.
///
/// # Safety
/// One range must be memory of ours of that length. If the other range is written to, the program must have named it as the
/// place for its call's result.
#[inline]
#[must_use]
pub unsafe fn copy(to: *mut u8, from: *const u8, len: usize) -> bool {
    let faults = &thread::parts().faults;
    // SAFETY: by contract.
    unsafe { if faults.reach() { arch::copy(to, from, len) } else { first_copy(faults, to, from, len) } }
}

/// As [`copy`], in a thread that the signals of faults may not reach yet.
#[cold]
unsafe fn first_copy(faults: &Faults, to: *mut u8, from: *const u8, len: usize) -> bool {
    if settings::is_silent() {
        // The program has confined itself, perhaps to calls that do not change handlers and masks.
        // SAFETY: by contract.
        return unsafe { arch::copy(to, from, len) };
    }
    handlers::install();
    // SAFETY: by contract.
    unsafe { faults.copy(to, from, len) }
}
