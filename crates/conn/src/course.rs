//! The course of a writing end, for threads that do not hold its lock.

use sidestep_abi::sync::{AtomicU32, Ordering};

/// Where a writing end puts its next byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Course {
    /// To the kernel.
    #[default]
    Kernel,
    /// Into the ring.
    Ring,
    /// To the kernel, behind unread bytes of an ended stretch that are still to be sent there.
    Unsent,
}

/// The course at the moment when the lock was last released.
#[derive(Debug, Default)]
pub struct Cell(AtomicU32);

impl Cell {
    /// As last set.
    #[inline]
    pub fn get(&self) -> Course {
        match self.0.load(Ordering::Acquire) {
            1 => Course::Ring,
            2 => Course::Unsent,
            _ => Course::Kernel,
        }
    }

    /// Whether this was last set.
    #[inline]
    pub fn is(&self, course: Course) -> bool {
        self.0.load(Ordering::Acquire) == course as u32
    }

    /// Called by the holder of the lock. Mostly nothing changes; a store would disturb other threads that read this cache line.
    #[inline]
    pub fn set(&self, course: Course) {
        if !self.is(course) {
            self.0.store(course as u32, Ordering::SeqCst);
        }
    }
}
