//! Shared memory as a member maps it.

use rustix::fd::{AsFd, OwnedFd};
use rustix::mm::{MapFlags, ProtFlags};

pub struct Mapped {
    at: *mut u8,
    len: usize,
}

impl Mapped {
    pub fn new(fd: &OwnedFd, len: usize) -> Mapped {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, fd.as_fd(), 0) };
        Mapped { at: at.expect("mmap").cast(), len }
    }

    /// The `T` at `offset`; `T` is one of the layout's types, atomics and padding only.
    pub fn at<T>(&self, offset: usize) -> &T {
        assert!(offset + size_of::<T>() <= self.len && offset.is_multiple_of(align_of::<T>()));
        // SAFETY: in bounds, aligned, mapped as long as `self`; any bytes are a value of an atomic.
        unsafe { &*self.at.add(offset).cast::<T>() }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`; references into it borrow `self`.
        unsafe { rustix::mm::munmap(self.at.cast(), self.len) }.expect("munmap");
    }
}
