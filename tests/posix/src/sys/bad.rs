//! Memory that cannot be accessed, or not to its end.

use std::ptr::null_mut;

use super::errno::Errno;

const PAGE: usize = 4096;

fn map(len: usize, fd: libc::c_int, kind: libc::c_int) -> *mut u8 {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, at an address of the kernel's choice.
    let at = unsafe { libc::mmap(null_mut(), len, protection, kind, fd, 0) };
    assert_ne!(at, libc::MAP_FAILED, "mmap: {:?}", Errno::last());
    at.cast()
}

fn protect(at: *mut u8, len: usize, protection: libc::c_int) {
    // SAFETY: a mapping that was just made, of which nobody has a reference.
    assert_eq!(unsafe { libc::mprotect(at.cast(), len, protection) }, 0, "mprotect: {:?}", Errno::last());
}

/// A page that nobody may read or write.
pub fn nowhere<T>() -> *mut T {
    let at = map(PAGE, -1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    protect(at, PAGE, libc::PROT_NONE);
    at.cast()
}

/// A page that nobody may write.
pub fn read_only<T>() -> *mut T {
    let at = map(PAGE, -1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    protect(at, PAGE, libc::PROT_READ);
    at.cast()
}

/// `good` bytes that can be read and written, with an inaccessible page behind them.
pub fn ends_after(good: usize) -> *mut u8 {
    let pages = good.next_multiple_of(PAGE);
    let at = map(pages + PAGE, -1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    protect(at.wrapping_add(pages), PAGE, libc::PROT_NONE);
    at.wrapping_add(pages - good)
}

/// Pages of a mapped file that was truncated to its first page.
pub fn truncated() -> *mut u8 {
    // SAFETY: the name is a terminated string.
    let file = unsafe { libc::memfd_create(c"truncated".as_ptr(), libc::MFD_CLOEXEC) };
    // SAFETY: plain numbers.
    assert_eq!(unsafe { libc::ftruncate(file, 16 * PAGE as i64) }, 0);
    let at = map(16 * PAGE, file, libc::MAP_SHARED);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::ftruncate(file, PAGE as i64) }, 0);
    super::fds::close(file).expect("close");
    at
}
