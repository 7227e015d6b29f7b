//! Shared memory: sealed memfds, mapped as far as the broker looks at them.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io;
use rustix::mm::{MapFlags, ProtFlags};
use sidestep_abi::link::{self, Header, SLOTS, SideArea, Slot, side_at, slot_at};
use sidestep_abi::page::Page;
use std::ptr::NonNull;

/// A memfd of this size that nobody can resize or unseal. So no access to a mapping of it is beyond the end of the file.
pub fn sealed_memfd(name: &str, size: u64) -> io::Result<OwnedFd> {
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&fd, size)?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(fd)
}

/// Tries of a call that can only fail for a moment.
const TRIES: usize = 4;

/// The first bytes of a sealed memfd, mapped shared; unmapped on drop.
struct Mapping {
    at: NonNull<u8>,
    len: usize,
}

impl Mapping {
    /// `fd` must come from [`sealed_memfd`] with at least `len` bytes.
    fn new(fd: &OwnedFd, len: usize) -> io::Result<Mapping> {
        // SAFETY: a new mapping at an address of the kernel's choice disturbs no memory of ours.
        let at = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd.as_fd(),
                0,
            )
        }?;
        NonNull::new(at.cast::<u8>()).map(|at| Mapping { at, len }).ok_or(io::Errno::NOMEM)
    }

    /// The `T` at `offset`.
    ///
    /// # Safety
    /// `T` must consist of atomics and padding only, so that any bytes are a `T` and other processes may write.
    unsafe fn at<T>(&self, offset: usize) -> &T {
        assert!(offset + size_of::<T>() <= self.len && offset.is_multiple_of(align_of::<T>()));
        // SAFETY: in bounds and aligned (just checked; mappings start on a page); lives as long as `self`;
        // the caller vouches for `T`.
        unsafe { self.at.add(offset).cast::<T>().as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `new`, until it is unmapped; every reference into it borrows `self`.
        let unmap = || unsafe { rustix::mm::munmap(self.at.as_ptr().cast(), self.len) };
        // Fails only if the kernel lacks memory for a moment.
        let unmapped = (0..TRIES).any(|_| unmap().is_ok());
        debug_assert!(unmapped);
    }
}

/// The page that one member shares with the broker.
pub struct PageMem(Mapping);

impl PageMem {
    /// The page, and its descriptor for the member.
    pub fn create() -> io::Result<(PageMem, OwnedFd)> {
        let fd = sealed_memfd("sidestep-page", size_of::<Page>() as u64)?;
        Ok((PageMem(Mapping::new(&fd, size_of::<Page>())?), fd))
    }

    pub fn get(&self) -> &Page {
        // SAFETY: `Page` is atomics and padding.
        unsafe { self.0.at(0) }
    }
}

/// The head of a link: everything before the rings. The broker never maps the rings.
pub struct LinkMem {
    map: Mapping,
    ring_size: usize,
}

impl LinkMem {
    /// The head, and the descriptor of the whole link.
    pub fn create(ring_size: usize) -> io::Result<(LinkMem, OwnedFd)> {
        let fd = sealed_memfd("sidestep-link", link::link_size(ring_size) as u64)?;
        Ok((LinkMem { map: Mapping::new(&fd, link::RINGS_AT)?, ring_size }, fd))
    }

    pub fn ring_size(&self) -> usize {
        self.ring_size
    }

    pub fn header(&self) -> &Header {
        // SAFETY: `Header` is atomics and padding.
        unsafe { self.map.at(0) }
    }

    /// The doorbells of `side`.
    pub fn side(&self, side: usize) -> &SideArea {
        assert!(side < 2);
        // SAFETY: `SideArea` is atomics and padding.
        unsafe { self.map.at(side_at(side)) }
    }

    pub fn slot(&self, slot: usize) -> &Slot {
        assert!(slot < SLOTS);
        // SAFETY: `Slot` is atomics and padding.
        unsafe { self.map.at(slot_at(slot)) }
    }
}
