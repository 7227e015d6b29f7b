//! The memory of a link, mapped.

use crate::mapping::Mapping;
use rustix::fd::OwnedFd;
use rustix::fs::SealFlags;
use rustix::io::{self, Errno};
use sidestep_abi::link::{Header, SideArea, Slot, link_size, ring_at, side_at, slot_at};
use sidestep_ring::{Data, header};

/// A mapping of a link's file, which nobody can resize. The program may write any of its words at any time.
pub struct Memory {
    mapping: Mapping,
    ring_size: usize,
}

impl Memory {
    /// Maps the link. `ring_size`: bytes of a ring, a power of two, as the broker says.
    ///
    /// # Errors
    ///
    /// EINVAL: the file is no link of this size, or can be resized. EPROTO: it is a link of another version.
    pub fn map(file: &OwnedFd, ring_size: usize) -> io::Result<Memory> {
        if !u32::try_from(ring_size).is_ok_and(|size| sidestep_abi::env::RING_SIZES.contains(&size))
            || !ring_size.is_power_of_two()
        {
            return Err(Errno::INVAL);
        }
        let len = link_size(ring_size);
        let sealed = SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        if !rustix::fs::fcntl_get_seals(file)?.contains(sealed) || (rustix::fs::fstat(file)?.st_size as usize) < len {
            return Err(Errno::INVAL);
        }
        let memory = Memory { mapping: Mapping::new(file, len)?, ring_size };
        // SAFETY: a header consists of atomics and padding.
        if header::fits(unsafe { memory.mapping.at::<Header>(0) }) { Ok(memory) } else { Err(Errno::PROTO) }
    }

    /// Bytes of a ring.
    pub fn ring_size(&self) -> usize {
        self.ring_size
    }

    /// The words of a side.
    pub fn side(&self, side: usize) -> &SideArea {
        // SAFETY: it consists of atomics and padding.
        unsafe { self.mapping.at(side_at(side)) }
    }

    /// The words of a connection.
    pub fn slot(&self, slot: usize) -> &Slot {
        // SAFETY: it consists of atomics and padding.
        unsafe { self.mapping.at(slot_at(slot)) }
    }

    /// The bytes of the ring that `side` writes. The caller uses them only while this mapping lives.
    pub fn ring(&self, slot: usize, side: usize) -> Data {
        let at = self.mapping.bytes(ring_at(self.ring_size, slot, side), self.ring_size);
        // SAFETY: so many bytes of the mapping, and the caller keeps it.
        unsafe { Data::new(at, self.ring_size) }
    }
}

/// Copies `bytes` into a ring, from the distance `at` on.
pub fn put(ring: Data, at: u64, bytes: &[u8]) {
    let copied = ring.put(at, bytes.as_ptr(), bytes.len(), |to, from, len| {
        // SAFETY: `to` is inside of the ring, `from` inside of `bytes`. The program may write the ring meanwhile: that spoils
        // its own bytes only.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
        true
    });
    debug_assert!(copied);
}

/// Appends `len` bytes of a ring to `to`, from the distance `at` on. `len` is at most the ring's size.
pub fn get(ring: Data, at: u64, len: usize, to: &mut Vec<u8>) {
    let old = to.len();
    to.resize(old + len, 0);
    let copied = ring.get(at, to[old..].as_mut_ptr(), len, |to, from, len| {
        // SAFETY: as in `put`, the other way round.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
        true
    });
    debug_assert!(copied);
}
