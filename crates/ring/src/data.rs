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

    /// Bytes, a power of two.
    pub const fn size(&self) -> usize {
        self.size
    }

    /// Address of the byte at distance `at` from the base, and the number of bytes from there until the ring wraps.
    #[inline]
    pub fn run(&self, at: u64) -> (*mut u8, usize) {
        let offset = at as usize & (self.size - 1);
        // SAFETY: offset < size, so the pointer is inside the memory promised to `new`.
        (unsafe { self.start.add(offset) }, self.size - offset)
    }

    /// Copies `len` bytes into the ring, in at most two pieces, by `copy(to, from, len)`. False: `copy` has failed, and the
    /// bytes there are undefined. `len` is at most `size`.
    #[inline]
    #[must_use]
    pub fn put(
        &self,
        at: u64,
        src: *const u8,
        len: usize,
        mut copy: impl FnMut(*mut u8, *const u8, usize) -> bool,
    ) -> bool {
        debug_assert!(len <= self.size);
        let (to, run) = self.run(at);
        let first = run.min(len);
        // `first` bytes fit before the wrap and the rest, at most size - first, at the start.
        copy(to, src, first) && (first == len || copy(self.start, src.wrapping_add(first), len - first))
    }

    /// Copies `len` bytes out of the ring, by `copy(to, from, len)`. False: `copy` has failed.
    #[inline]
    #[must_use]
    pub fn get(
        &self,
        at: u64,
        dst: *mut u8,
        len: usize,
        mut copy: impl FnMut(*mut u8, *const u8, usize) -> bool,
    ) -> bool {
        debug_assert!(len <= self.size);
        let (from, run) = self.run(at);
        let first = run.min(len);
        copy(dst, from, first) && (first == len || copy(dst.wrapping_add(first), self.start, len - first))
    }
}
