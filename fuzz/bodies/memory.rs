//! The bytes of a ring, copied by the shipped [`Data`]. Each copy must lie within the ring and within the caller's buffer, and
//! the engine checks each byte for races.
#![allow(dead_code)] // each test uses its part

use super::engine::UnsafeCell;
use sidestep_ring::Data;
use std::ops::Range;

pub struct Memory {
    bytes: Box<[std::cell::UnsafeCell<u8>]>,
    /// One for each byte: the engine sees who reads and who writes it.
    accesses: Box<[UnsafeCell<()>]>,
}

// SAFETY: the protocol under test orders all accesses to the bytes, and `accesses` shows the model checker each of them.
unsafe impl Sync for Memory {}

impl Memory {
    pub fn new(size: usize) -> Memory {
        Memory {
            bytes: (0..size).map(|_| std::cell::UnsafeCell::new(0)).collect(),
            accesses: (0..size).map(|_| UnsafeCell::new(())).collect(),
        }
    }

    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    fn start(&self) -> *mut u8 {
        self.bytes.as_ptr().cast::<u8>().cast_mut()
    }

    fn data(&self) -> Data {
        // SAFETY: the memory outlives every use of the value, and its bytes are cells.
        unsafe { Data::new(self.start(), self.size()) }
    }

    /// Copies `bytes` into the ring, at this distance from the base.
    pub fn put(&self, at: u64, bytes: &[u8]) {
        let copied = self.data().put(at, bytes.as_ptr(), bytes.len(), |to, from, len| {
            within(bytes.as_ptr(), bytes.len(), from, len);
            within(self.start(), self.size(), to, len).for_each(|i| self.accesses[i].with_mut(|_| ()));
            // SAFETY: both ranges are in bounds, as just checked.
            unsafe { to.copy_from_nonoverlapping(from, len) };
            true
        });
        assert!(copied);
    }

    /// Copies `n` bytes out of the ring, from this distance from the base on.
    pub fn get(&self, at: u64, n: usize) -> Vec<u8> {
        let mut got = vec![0; n];
        let (buffer, mut left) = (got.as_mut_ptr(), n);
        let copied = self.data().get(at, buffer, n, |to, from, len| {
            within(buffer, n, to, len);
            within(self.start(), self.size(), from, len).for_each(|i| self.accesses[i].with(|_| ()));
            left -= len;
            // SAFETY: both ranges are in bounds, as just checked.
            unsafe { to.copy_from_nonoverlapping(from, len) };
            true
        });
        assert!(copied && left == 0);
        got
    }
}

/// Which of the `size` bytes at `start` the `len` bytes at `at` are. They must be some.
fn within(start: *const u8, size: usize, at: *const u8, len: usize) -> Range<usize> {
    let first = (at as usize).wrapping_sub(start as usize);
    assert!(first <= size && len <= size - first, "{len} bytes at {first} of {size}");
    first..first + len
}
