//! The memory of a link, mapped.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::SealFlags;
use rustix::io::{self, Errno};
use rustix::mm::{MapFlags, ProtFlags};
use sidestep_abi::link::{Header, SideArea, Slot, link_size, ring_at, side_at, slot_at};
use sidestep_ring::{Data, header};
use std::ptr::NonNull;

/// A mapping of a link's file, which nobody can resize. The program may write any of its words at any time.
pub struct Memory {
    at: NonNull<u8>,
    len: usize,
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
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice disturbs no memory of ours.
        let at = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, access, flags, file.as_fd(), 0) }?;
        let memory = NonNull::new(at.cast::<u8>()).map(|at| Memory { at, len, ring_size }).ok_or(Errno::NOMEM)?;
        // SAFETY: a header consists of atomics and padding.
        if header::fits(unsafe { memory.at::<Header>(0) }) { Ok(memory) } else { Err(Errno::PROTO) }
    }

    /// Bytes of a ring.
    pub fn ring_size(&self) -> usize {
        self.ring_size
    }

    /// The words of a side.
    pub fn side(&self, side: usize) -> &SideArea {
        // SAFETY: it consists of atomics and padding.
        unsafe { self.at(side_at(side)) }
    }

    /// The words of a connection.
    pub fn slot(&self, slot: usize) -> &Slot {
        // SAFETY: it consists of atomics and padding.
        unsafe { self.at(slot_at(slot)) }
    }

    /// The bytes of the ring that `side` writes. The caller uses them only while this mapping lives.
    pub fn ring(&self, slot: usize, side: usize) -> Data {
        let at = ring_at(self.ring_size, slot, side);
        assert!(at + self.ring_size <= self.len);
        // SAFETY: inside of the mapping, as just checked, and the caller keeps it.
        unsafe { Data::new(self.at.add(at).as_ptr(), self.ring_size) }
    }

    /// The `T` at `offset`.
    ///
    /// # Safety
    /// `T` must consist of atomics and padding only, so that any bytes are a `T` and other processes may write.
    unsafe fn at<T>(&self, offset: usize) -> &T {
        assert!(offset + size_of::<T>() <= self.len && offset.is_multiple_of(align_of::<T>()));
        // SAFETY: in bounds and aligned, as just checked; it lives as long as `self`; the caller vouches for `T`.
        unsafe { self.at.add(offset).cast::<T>().as_ref() }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping of `map`; every reference into it borrows `self`, and `ring` says who keeps it.
        let _ = unsafe { rustix::mm::munmap(self.at.as_ptr().cast(), self.len) };
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
