//! System calls of the preload library, made without libc: our own calls then neither reach our own hooks nor change the
//! program's errno. Everything that depends on the processor is in [`arch`].
#![cfg_attr(not(test), no_std)]

#[cfg_attr(target_arch = "x86_64", path = "arch/x86_64/mod.rs")]
pub mod arch;

pub mod clock;
pub mod control;
pub mod descriptors;
pub mod elf;
pub mod fd;
pub mod fdinfo;
pub mod limit;
pub mod lock;
pub mod mem;
pub mod process;
pub mod push;
pub mod reserved;
pub mod send_buffer;
pub mod signal;
pub mod tcp;

/// An error number of the kernel, positive, as in errno(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// Tries of a call that must succeed and can only fail for a moment.
pub const TRIES: u32 = 4;

impl Errno {
    /// Whether the error is temporary: the kernel lacks a resource, or was interrupted. The same call may succeed later.
    pub fn passes(self) -> bool {
        use libc::{EAGAIN, EINTR, EMFILE, ENFILE, ENOBUFS, ENOMEM, ETOOMANYREFS};
        [EAGAIN, EINTR, EMFILE, ENFILE, ENOBUFS, ENOMEM, ETOOMANYREFS].contains(&self.0)
    }
}

/// Result of a system call.
pub type Result<T> = core::result::Result<T, Errno>;

/// Makes a system call. Arguments are words, as in syscall(2).
///
/// # Safety
/// The arguments must be what the call expects; pointers must be valid for what the kernel does with them.
#[inline]
pub unsafe fn call(number: libc::c_long, args: [usize; 6]) -> Result<usize> {
    // SAFETY: passed on to the caller.
    let result = unsafe { arch::syscall(number as usize, args) };
    if result as isize >= -4095 && (result as isize) < 0 { Err(Errno(-(result as isize) as i32)) } else { Ok(result) }
}
