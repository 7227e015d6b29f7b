//! Memory of a file that other processes map, too.

use rustix::fd::AsFd;
use rustix::io::{self, Errno};
use rustix::mm::{MapFlags, ProtFlags};
use std::ptr::NonNull;

/// A mapping of the first bytes of a file. Nobody may shrink the file.
pub struct Mapping {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is owned by the value, and stays where it is. Its plain bytes are read and written by whoever has the connection
// that they belong to; other processes write at the same time anyway.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes. The caller has made sure that the file is that long, and stays so.
    pub fn new(file: impl AsFd, len: usize) -> io::Result<Mapping> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice disturbs no memory of ours.
        let at = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, access, flags, file.as_fd(), 0) }?;
        NonNull::new(at.cast::<u8>()).map(|at| Mapping { at, len }).ok_or(Errno::NOMEM)
    }

    /// The `T` at `offset`.
    ///
    /// # Safety
    /// `T` must consist of atomics and padding only, so that any bytes are a `T` and other processes may write.
    pub unsafe fn at<T>(&self, offset: usize) -> &T {
        let at = self.bytes(offset, size_of::<T>());
        assert!(offset.is_multiple_of(align_of::<T>()));
        // SAFETY: in bounds and aligned, as just checked; it lives as long as `self`; the caller vouches for `T`.
        unsafe { &*at.cast::<T>() }
    }

    /// The address of `len` bytes at `offset`. Valid while this mapping lives.
    pub fn bytes(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len));
        // SAFETY: inside of the mapping, as just checked.
        unsafe { self.at.add(offset).as_ptr() }
    }

    /// Copies bytes into the memory.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.bytes(offset, bytes.len());
        // SAFETY: `to` is inside of the mapping, and no reference exists to its plain bytes.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Copies bytes out of the memory.
    pub fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        let (from, mut to) = (self.bytes(offset, len), vec![0; len]);
        // SAFETY: `from` is inside of the mapping, and `to` has as many bytes.
        unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), len) };
        to
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping of `new`; every reference into it borrows `self`, and `bytes` says how long its result is valid.
        let _ = unsafe { rustix::mm::munmap(self.at.as_ptr().cast(), self.len) };
    }
}
