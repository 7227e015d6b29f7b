//! One ring of an AF_XDP socket, in memory that is shared with the kernel.
//!
//! The producer's and the consumer's index count entries and wrap at 2^32; the entry of an index is at `index & mask`. Both
//! indices are in the shared memory, so whoever maps the ring again finds them.

use rustix::fd::BorrowedFd;
use rustix::io;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::xdp::{XdpRingFlags, XdpRingOffset};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// A ring whose entries are of type `T`.
pub(crate) struct Ring<T> {
    mapping: Mapping,
    offsets: Offsets,
    size: u32,
    entries: std::marker::PhantomData<T>,
}

#[derive(Clone, Copy)]
struct Offsets {
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
}

impl<T: Copy> Ring<T> {
    /// Maps a ring of `size` entries, a power of two: the size that the socket was given. `page_offset`: which ring.
    pub fn map(socket: BorrowedFd, size: u32, offsets: XdpRingOffset, page_offset: u64) -> io::Result<Ring<T>> {
        // Linux 5.4 and later have flags.
        let flags = offsets.flags.ok_or(io::Errno::NOSYS)?;
        let [producer, consumer, flags, entries] =
            [offsets.producer, offsets.consumer, flags, offsets.desc].map(|offset| offset as usize);
        let offsets = Offsets { producer, consumer, flags, entries };
        let length = entries + size as usize * size_of::<T>();
        let mapping = Mapping::new(socket, length, page_offset)?;
        Ok(Ring { mapping, offsets, size, entries: std::marker::PhantomData })
    }

    /// Number of entries.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Index of the next entry to be produced. Entries below it are complete.
    pub fn producer(&self) -> u32 {
        self.word(self.offsets.producer).load(Ordering::Acquire)
    }

    /// Index of the next entry to be consumed. The entries below it may be used again.
    pub fn consumer(&self) -> u32 {
        self.word(self.offsets.consumer).load(Ordering::Acquire)
    }

    /// Publishes the entries below `index`.
    pub fn set_producer(&self, index: u32) {
        self.word(self.offsets.producer).store(index, Ordering::Release);
    }

    /// Gives the entries below `index` back to the producer.
    pub fn set_consumer(&self, index: u32) {
        self.word(self.offsets.consumer).store(index, Ordering::Release);
    }

    /// Whether the kernel must be told of new entries.
    pub fn needs_wakeup(&self) -> bool {
        self.word(self.offsets.flags).load(Ordering::Acquire) & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits() != 0
    }

    /// The entry of this index.
    pub fn read(&self, index: u32) -> T {
        // SAFETY: `entry` is inside of the mapping. Any bytes are a T. The other side does not write this entry meanwhile; if it did,
        // a volatile read would only yield a wrong value, which callers check.
        unsafe { self.entry(index).read_volatile() }
    }

    /// Writes the entry of this index, which is not published yet.
    pub fn write(&mut self, index: u32, value: T) {
        // SAFETY: as above; the producer alone writes entries that are not published.
        unsafe { self.entry(index).write_volatile(value) }
    }

    fn entry(&self, index: u32) -> *mut T {
        let slot = (index & (self.size - 1)) as usize;
        // SAFETY: the mapping has `size` entries behind `entries`.
        unsafe { self.mapping.at(self.offsets.entries).cast::<T>().add(slot) }
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: the kernel's offsets of words are aligned and below that of the entries, so inside of the mapping, which lives as
        // long as `self`. Both sides access the words atomically only.
        unsafe { AtomicU32::from_ptr(self.mapping.at(offset).cast()) }
    }
}

struct Mapping {
    start: NonNull<c_void>,
    length: usize,
}

// SAFETY: the memory is owned by the mapping, whatever thread uses it.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(socket: BorrowedFd, length: usize, offset: u64) -> io::Result<Mapping> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe { mmap(std::ptr::null_mut(), length, protection, flags, socket, offset) }?;
        Ok(Mapping { start: NonNull::new(start).ok_or(io::Errno::NOMEM)?, length })
    }

    /// The caller stays inside of the mapping.
    fn at(&self, offset: usize) -> *mut c_void {
        debug_assert!(offset < self.length);
        self.start.as_ptr().wrapping_byte_add(offset)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and all references into it are borrowed from `self`.
        let _ = unsafe { munmap(self.start.as_ptr(), self.length) };
    }
}
