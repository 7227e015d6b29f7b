//! The reading end of a ring.

use crate::Lie;
use sidestep_abi::link::{FROZEN, Reader, Writer};
use sidestep_abi::sync::{Ordering, fence_after_rmw};

/// What became of an attempt to consume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// The bytes are ours.
    Done,
    /// The stretch had been ended before them: they will come by kernel and must be forgotten.
    Frozen,
}

/// A stretch that the writer has announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub epoch: u32,
    pub from: u64,
}

impl Stretch {
    /// Whether it was ended before the reader could enter it: its bytes come by kernel.
    #[inline]
    pub fn is_cancelled(&self, reader: &Reader) -> bool {
        reader.head.load(Ordering::Acquire) == self.from | FROZEN
    }
}

/// The reader's private knowledge of its ring. `Default` is a direction that has never had a stretch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Input {
    /// Next position to read.
    pub pos: u64,
    /// Number of the last stretch entered, or seen cancelled.
    pub epoch: u32,
}

impl Input {
    /// The announced stretch that this end has not dealt with yet.
    #[inline]
    pub fn announced(&self, writer: &Writer) -> Option<Stretch> {
        // SYNC stretch
        let epoch = writer.epoch.load(Ordering::Acquire);
        if epoch == self.epoch {
            return None;
        }
        Some(Stretch { epoch, from: writer.ring_from.load(Ordering::Relaxed) })
    }

    /// Enters the stretch; `pos` must equal its beginning. False: the writer had cancelled it.
    pub fn enter(&mut self, reader: &Reader, stretch: Stretch) -> Result<bool, Lie> {
        let word = reader.head.load(Ordering::Relaxed);
        self.epoch = stretch.epoch;
        if word == stretch.from | FROZEN {
            return Ok(false);
        }
        if word & FROZEN == 0 {
            return Err(Lie);
        }
        match reader.head.compare_exchange(word, stretch.from, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => {
                self.pos = stretch.from;
                Ok(true)
            }
            Err(now) if now == stretch.from | FROZEN => Ok(false),
            Err(_) => Err(Lie),
        }
    }

    /// Bytes that can be read now.
    #[inline]
    pub fn available(&self, writer: &Writer, size: usize) -> Result<usize, Lie> {
        // SYNC tail
        let n = writer.tail.load(Ordering::Acquire).wrapping_sub(self.pos);
        if n > size as u64 { Err(Lie) } else { Ok(n as usize) }
    }

    /// Distance of the next byte from the writer's base. Any value is safe: [`crate::Data`] wraps it.
    #[inline]
    pub fn at(&self, writer: &Writer) -> u64 {
        // SYNC tail: the base belongs to the tail that was read before.
        self.pos.wrapping_sub(writer.base.load(Ordering::Relaxed))
    }

    /// Consumes `n` bytes that have been copied out. The full fence in it lets the caller look for a writer
    /// that waits for space next.
    #[inline]
    pub fn advance(&mut self, reader: &Reader, n: usize) -> Result<Advance, Lie> {
        let next = self.pos + n as u64;
        // SYNC head
        match reader.head.compare_exchange(self.pos, next, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => {
                fence_after_rmw();
                self.pos = next;
                Ok(Advance::Done)
            }
            Err(now) if now == self.pos | FROZEN => Ok(Advance::Frozen),
            Err(_) => Err(Lie),
        }
    }

    /// Whether the stretch that this end is in has been ended. Looks only at the reader's own word, whose position
    /// nobody but the reader may move: a program that is told of bytes by a moved one would look for them for ever.
    #[inline]
    pub fn is_frozen(&self, reader: &Reader) -> Result<bool, Lie> {
        let word = reader.head.load(Ordering::Acquire);
        if word & !FROZEN == self.pos { Ok(word & FROZEN != 0) } else { Err(Lie) }
    }

    /// Between stretches the reader's word is frozen, wherever. Nobody but the reader may thaw it.
    #[inline]
    pub fn is_outside(&self, reader: &Reader) -> bool {
        reader.head.load(Ordering::Acquire) & FROZEN != 0
    }

    /// Ends the stretch at the present position. The unread bytes will come by kernel. The full fence lets the
    /// caller look for what was published before the writer could know.
    pub fn freeze(&self, reader: &Reader) {
        reader.head.fetch_or(FROZEN, Ordering::SeqCst);
        fence_after_rmw();
    }
}
