//! Addresses at which one file after another is mapped, and which stay reserved in between: a late access finds zeros, or the
//! next file, but never faults.

use crate::{Result, mem};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::*};

/// The caller makes sure that [`Reserved::map`] and [`Reserved::clear`] do not run concurrently.
pub struct Reserved {
    base: AtomicPtr<u8>,
    /// Length in bytes; 0: nothing is reserved.
    len: AtomicUsize,
}

impl Reserved {
    /// No addresses yet.
    pub const fn none() -> Reserved {
        Reserved { base: AtomicPtr::new(core::ptr::null_mut()), len: AtomicUsize::new(0) }
    }

    /// The first address; null: none yet.
    #[inline]
    pub fn base(&self) -> *mut u8 {
        self.base.load(Acquire)
    }

    /// Of several, the one with the smallest rank fits a file of `len` bytes best: it needs no new addresses, or wastes the
    /// fewest.
    pub fn rank(&self, len: usize) -> u32 {
        match self.len.load(Relaxed) {
            same if same == len => 0,
            0 => 1,
            larger if larger > len => 2,
            _ => 3,
        }
    }

    /// Maps the first `len` bytes of a file, shared. If that needs more addresses, the former ones stay reserved as well.
    pub fn map(&self, file: i32, len: usize) -> Result<()> {
        if self.len.load(Relaxed) >= len {
            // SAFETY: our own mapping, of at least that size; what was there is no longer in use.
            return unsafe { mem::file_over(self.base(), file, len) };
        }
        let base = mem::file(file, len)?;
        self.base.store(base, Release);
        self.len.store(len, Relaxed);
        Ok(())
    }

    /// Gives the memory back, and keeps the addresses reserved.
    pub fn clear(&self) {
        // SAFETY: our own mapping; what was there is no longer in use.
        let _ = unsafe { mem::anonymous_over(self.base(), self.len.load(Relaxed)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    /// A file in memory, full of this byte.
    fn file(pages: usize, byte: u8) -> std::fs::File {
        use std::os::fd::FromRawFd;
        // SAFETY: a name that ends with 0; no other memory involved.
        let fd = unsafe { libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(fd >= 0);
        // SAFETY: a descriptor that the kernel has just made for us.
        let mut file = unsafe { std::fs::File::from_raw_fd(fd) };
        std::io::Write::write_all(&mut file, &vec![byte; pages * PAGE]).expect("write");
        file
    }

    fn map(reserved: &Reserved, pages: usize, byte: u8) {
        use std::os::fd::AsRawFd;
        reserved.map(file(pages, byte).as_raw_fd(), pages * PAGE).expect("map");
    }

    fn byte_at(base: *mut u8, page: usize) -> u8 {
        // SAFETY: callers look at pages that were mapped once.
        unsafe { base.add(page * PAGE).read_volatile() }
    }

    #[test]
    fn a_smaller_file_goes_where_a_larger_one_was() {
        let reserved = Reserved::none();
        map(&reserved, 4, b'a');
        let base = reserved.base();
        reserved.clear();
        assert_eq!(byte_at(base, 3), 0);
        map(&reserved, 1, b'b');
        assert_eq!((reserved.base(), byte_at(base, 0), byte_at(base, 1)), (base, b'b', 0));
        reserved.clear();
        map(&reserved, 4, b'c');
        assert_eq!((reserved.base(), byte_at(base, 3)), (base, b'c'));
    }

    #[test]
    fn a_larger_file_leaves_the_former_addresses_readable() {
        let reserved = Reserved::none();
        map(&reserved, 1, b'a');
        let former = reserved.base();
        reserved.clear();
        map(&reserved, 4, b'b');
        assert_eq!((byte_at(reserved.base(), 3), byte_at(former, 0)), (b'b', 0));
    }

    /// Peers that wish for large rings and go must not use up the entries of others.
    #[test]
    fn every_reservation_suits_some_more_and_some_less() {
        let reserved = [const { Reserved::none() }; 4];
        for (reserved, pages) in reserved.iter().zip([1, 2, 4]) {
            map(reserved, pages, b'a');
        }
        assert_eq!(reserved.each_ref().map(|r| r.rank(2 * PAGE)), [3, 0, 2, 1]);
    }
}
