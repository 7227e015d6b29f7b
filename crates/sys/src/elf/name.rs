//! The name of a symbol with its hash values, which are computed at compile time.

use core::ffi::CStr;

/// A symbol's name.
#[derive(Clone, Copy)]
pub struct Name {
    text: &'static CStr,
    /// For DT_GNU_HASH.
    pub(super) gnu: u32,
    /// For DT_HASH, the System V ABI's.
    pub(super) sysv: u32,
}

impl Name {
    /// Computes the hash values.
    pub const fn new(text: &'static CStr) -> Name {
        Name { text, gnu: gnu_hash(text.to_bytes()), sysv: sysv_hash(text.to_bytes()) }
    }

    /// The name itself.
    pub const fn c_str(&self) -> &'static CStr {
        self.text
    }

    /// Whether the NUL-terminated string at `other` is this name.
    ///
    /// # Safety
    /// `other` must be readable up to its NUL.
    pub(super) unsafe fn is(&self, other: *const u8) -> bool {
        let wanted = self.text.to_bytes_with_nul();
        // SAFETY: reading stops at the first byte that differs, at the latest at the NUL of either.
        wanted.iter().enumerate().all(|(i, byte)| unsafe { *other.add(i) } == *byte)
    }
}

const fn gnu_hash(name: &[u8]) -> u32 {
    let mut hash = 5381u32;
    let mut i = 0;
    while i < name.len() {
        hash = hash.wrapping_mul(33).wrapping_add(name[i] as u32);
        i += 1;
    }
    hash
}

const fn sysv_hash(name: &[u8]) -> u32 {
    let mut hash = 0u32;
    let mut i = 0;
    while i < name.len() {
        hash = (hash << 4).wrapping_add(name[i] as u32);
        let high = hash & 0xf000_0000;
        hash = (hash ^ (high >> 24)) & !high;
        i += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values from the System V ABI's and the GNU documents' examples.
    #[test]
    fn hashes_are_those_of_the_linker() {
        assert_eq!((gnu_hash(b""), gnu_hash(b"printf"), gnu_hash(b"syscall")), (0x1505, 0x156b_2bb8, 0xbac2_12a0));
        assert_eq!((sysv_hash(b""), sysv_hash(b"printf"), sysv_hash(b"syscall")), (0, 0x077_905a6, 0x0b09_985c));
    }
}
