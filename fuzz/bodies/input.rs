//! Bytes of a fuzzer, or of a generator with a fixed seed, as the choices that a body makes.
#![allow(dead_code)] // each body uses its part

/// Hands out the bytes one after the other; zeros when there are no more.
pub struct Input<'a> {
    left: &'a [u8],
}

impl<'a> Input<'a> {
    pub fn new(data: &'a [u8]) -> Input<'a> {
        Input { left: data }
    }

    pub fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.left.split_first() else { return 0 };
        self.left = rest;
        *first
    }

    pub fn word(&mut self) -> u64 {
        u64::from_le_bytes(core::array::from_fn(|_| self.byte()))
    }

    /// A number below `n`, at most 256.
    pub fn below(&mut self, n: usize) -> usize {
        self.byte() as usize % n
    }

    /// What a hostile peer would try: a value near one that matters, with or without the highest bit, or any.
    pub fn hostile(&mut self, near: &[u64]) -> u64 {
        let kind = self.byte();
        let Some(base) = near.get(kind as usize % (near.len() + 1)) else { return self.word() };
        let value = base.wrapping_add(self.byte() as i8 as u64);
        if kind & 0x80 != 0 { value ^ 1 << 63 } else { value }
    }
}
