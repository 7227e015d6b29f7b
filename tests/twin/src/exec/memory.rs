//! Memory for one argument, with an inaccessible page behind it.

use std::ptr::null_mut;

const PAGE: usize = 4096;

/// `len` bytes at the end of the mapping, so that an access beyond them is noticed.
pub struct Area {
    base: *mut u8,
    pages: usize,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone. The thread that makes the call and the thread that reads the outcome take
// turns.
unsafe impl Send for Area {}

impl Area {
    pub fn new(len: usize) -> Area {
        Area::with(len, libc::PROT_READ | libc::PROT_WRITE)
    }

    /// A page that must not be accessed at all, or not be written.
    pub fn forbidden(protection: libc::c_int) -> Area {
        Area::with(PAGE, protection)
    }

    fn with(len: usize, protection: libc::c_int) -> Area {
        let pages = len.next_multiple_of(PAGE);
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let base = unsafe { libc::mmap(null_mut(), pages + PAGE, libc::PROT_NONE, kind, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED, "mmap");
        // SAFETY: a part of the mapping that was just made.
        assert_eq!(unsafe { libc::mprotect(base, pages, protection) }, 0, "mprotect");
        Area { base: base.cast(), pages, len }
    }

    pub fn of<T: Copy>(value: T) -> Area {
        Area::of_all(&[value])
    }

    pub fn of_all<T: Copy>(values: &[T]) -> Area {
        let area = Area::new(size_of_val(values));
        // SAFETY: the area has room for exactly these values.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr().cast::<u8>(), area.at(), area.len) };
        area
    }

    pub fn filled(len: usize, byte: u8) -> Area {
        let area = Area::new(len);
        // SAFETY: `len` bytes of the area.
        unsafe { area.at().write_bytes(byte, len) };
        area
    }

    pub fn at(&self) -> *mut u8 {
        self.base.wrapping_add(self.pages - self.len)
    }

    pub fn bytes(&self) -> Vec<u8> {
        // SAFETY: the area's own bytes; nobody writes to them at the same time.
        unsafe { std::slice::from_raw_parts(self.at(), self.len) }.to_vec()
    }

    /// The present i-th value.
    pub fn get<T: Copy>(&self, i: usize) -> T {
        assert!((i + 1) * size_of::<T>() <= self.len, "within the area");
        // SAFETY: within the area, and plain old data.
        unsafe { self.at().cast::<T>().add(i).read_unaligned() }
    }

    pub fn count<T>(&self) -> usize {
        self.len / size_of::<T>()
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, to which no reference is left.
        unsafe { libc::munmap(self.base.cast(), self.pages + PAGE) };
    }
}
