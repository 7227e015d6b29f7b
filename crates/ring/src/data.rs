//! The bytes of a ring.

/// The memory of one ring: `size` bytes, a power of two, that the peer may be writing at the same time.
#[derive(Clone, Copy, Debug)]
pub struct Data {
    start: *mut u8,
    size: usize,
}

impl Data {
    /// # Safety
    /// `start` must stay valid for reads and writes of `size` bytes as long as this value or a copy is used.
    pub const unsafe fn new(start: *mut u8, size: usize) -> Data {
        assert!(size.is_power_of_two());
        Data { start, size }
    }

    pub const fn size(&self) -> usize {
        self.size
    }

    /// Where the byte at distance `at` from the base lies, and how many follow it before the ring wraps.
    #[inline]
    pub fn run(&self, at: u64) -> (*mut u8, usize) {
        let offset = at as usize & (self.size - 1);
        // SAFETY: offset < size, so the pointer is inside the memory promised to `new`.
        (unsafe { self.start.add(offset) }, self.size - offset)
    }

    /// Copies `len` bytes into the ring.
    ///
    /// # Safety
    /// `src` must be readable for `len` bytes; `len` is at most `size`.
    #[inline]
    pub unsafe fn put(&self, at: u64, src: *const u8, len: usize) {
        debug_assert!(len <= self.size);
        let (to, run) = self.run(at);
        let first = run.min(len);
        // SAFETY: `first` bytes fit before the wrap and the rest, at most size - first, at the start; `src` is
        // readable for both by contract. The peer may read them meanwhile: they are bytes, any value is fine.
        unsafe {
            core::ptr::copy_nonoverlapping(src, to, first);
            core::ptr::copy_nonoverlapping(src.add(first), self.start, len - first);
        }
    }

    /// Copies `len` bytes out of the ring.
    ///
    /// # Safety
    /// `dst` must be writable for `len` bytes; `len` is at most `size`.
    #[inline]
    pub unsafe fn get(&self, at: u64, dst: *mut u8, len: usize) {
        debug_assert!(len <= self.size);
        let (from, run) = self.run(at);
        let first = run.min(len);
        // SAFETY: as in `put`, with the directions exchanged.
        unsafe {
            core::ptr::copy_nonoverlapping(from, dst, first);
            core::ptr::copy_nonoverlapping(self.start, dst.add(first), len - first);
        }
    }
}
