//! Mappings.

use crate::{Errno, Result, call};

/// Anonymous memory, shared with children of fork() if `shared`.
pub fn anonymous(len: usize, shared: bool) -> Result<*mut u8> {
    let kind = if shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
    map(0, len, kind | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1, 0)
}

/// Private zero bytes that are zero again in each forked child, whatever the parent has written (Linux 4.14).
pub fn emptied_by_fork(len: usize) -> Result<*mut u8> {
    let page = anonymous(len, false)?;
    // SAFETY: the mapping is ours, and nobody uses it yet.
    let advise = |advice: i32| unsafe { call(libc::SYS_madvise, [page as usize, len, advice as usize, 0, 0, 0]) };
    // Some emulators of the kernel accept all advice, and follow none.
    if advise(NO_ADVICE).is_err() && advise(libc::MADV_WIPEONFORK).is_ok() {
        return Ok(page);
    }
    // SAFETY: nobody uses it.
    unsafe { unmap(page, len) };
    Err(Errno(libc::ENOSYS))
}

/// madvise(2) knows no such advice.
const NO_ADVICE: i32 = -1;

/// A file's memory, shared.
pub fn file(fd: i32, len: usize) -> Result<*mut u8> {
    file_at(fd, len, 0)
}

/// A file's memory from offset `from` on, shared.
pub fn file_at(fd: i32, len: usize, from: usize) -> Result<*mut u8> {
    map(0, len, libc::MAP_SHARED | libc::MAP_NORESERVE, fd, from)
}

/// A file's memory in place of what is mapped at `at`.
///
/// # Safety
/// `at` must be a mapping of ours of at least `len` bytes whose present content nobody relies on.
pub unsafe fn file_over(at: *mut u8, fd: i32, len: usize) -> Result<()> {
    map(at as usize, len, libc::MAP_SHARED | libc::MAP_FIXED, fd, 0).map(drop)
}

/// Fresh zero bytes in place of what is mapped at `at`: stale pointers into it stay harmless.
///
/// # Safety
/// As for [`file_over`].
pub unsafe fn anonymous_over(at: *mut u8, len: usize) -> Result<()> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    map(at as usize, len, flags, -1, 0).map(drop)
}

/// Fails unless the memory file behind `fd` has at least `len` bytes and can never change its size. Then no access to a mapping
/// of it can fault.
pub fn check_sealed(fd: i32, len: usize) -> Result<()> {
    let seals = crate::fd::fcntl(fd, libc::F_GET_SEALS, 0)? as i32;
    let needed = libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
    // SAFETY: no memory involved.
    let size = unsafe { call(libc::SYS_lseek, [fd as usize, 0, libc::SEEK_END as usize, 0, 0, 0]) }?;
    if seals & needed == needed && size >= len { Ok(()) } else { Err(Errno(libc::EINVAL)) }
}

fn map(at: usize, len: usize, flags: i32, fd: i32, from: usize) -> Result<*mut u8> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: without MAP_FIXED the kernel picks free addresses; with it the caller vouches for the old mapping.
    unsafe { call(libc::SYS_mmap, [at, len, prot as usize, flags as usize, fd as isize as usize, from]) }
        .map(|p| p as *mut u8)
}

/// Unmaps what [`anonymous`] or [`file`] gave.
///
/// # Safety
/// Nobody may use the mapping any more.
pub unsafe fn unmap(at: *mut u8, len: usize) {
    // SAFETY: by contract. A failure leaves it mapped.
    let _ = unsafe { call(libc::SYS_munmap, [at as usize, len, 0, 0, 0, 0]) };
}
