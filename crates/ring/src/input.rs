//! The reading end of a ring.

use crate::{Lie, PATIENCE};
use sidestep_abi::link::{COPYING, FROZEN, POSITION, Reader, Writer};
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
    /// The writer copies the unread bytes of this stretch into the kernel: as far as known.
    copying: bool,
}

impl Input {
    /// The reading end of a direction that is at `pos`.
    pub fn at_position(pos: u64) -> Input {
        Input { pos, ..Input::default() }
    }

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

    /// Enters the stretch at `pos`: its beginning, or somewhere behind it if the kernel carries copies, of which some have
    /// been read. False: it had been cancelled.
    pub fn enter(&mut self, reader: &Reader, stretch: Stretch) -> Result<bool, Lie> {
        self.epoch = stretch.epoch;
        for _ in 0..PATIENCE {
            let word = reader.head.load(Ordering::Relaxed);
            if word == stretch.from | FROZEN {
                return Ok(false);
            }
            // The mark counts only if it was set for this stretch.
            let copying = word == stretch.from | FROZEN | COPYING;
            if word & FROZEN == 0 || self.pos != stretch.from && !copying {
                return Err(Lie);
            }
            let entered = self.pos | if copying { COPYING } else { 0 };
            if reader.head.compare_exchange(word, entered, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                self.copying = copying;
                return Ok(true);
            }
        }
        Err(Lie)
    }

    /// Bytes that can be read now.
    #[inline]
    pub fn available(&self, writer: &Writer, size: usize) -> Result<usize, Lie> {
        // SYNC tail
        let n = writer.tail.load(Ordering::Acquire).wrapping_sub(self.pos);
        if n > size as u64 { Err(Lie) } else { Ok(n as usize) }
    }

    /// Whether the tail of this stretch will not move any more. Ask before the last look at the tail.
    #[inline]
    pub fn is_complete(&self, writer: &Writer) -> bool {
        // SYNC complete
        writer.complete.load(Ordering::Acquire) == self.epoch
    }

    /// Whether the kernel carries copies of bytes of this stretch, as far as known ([`Input::is_frozen`] asks).
    pub fn is_copying(&self) -> bool {
        self.copying
    }

    /// Distance of the next byte from the writer's base. Any value is safe: [`crate::Data`] wraps it.
    #[inline]
    pub fn at(&self, writer: &Writer) -> u64 {
        // SYNC tail: the base belongs to the tail that was read before.
        self.pos.wrapping_sub(writer.base.load(Ordering::Relaxed))
    }

    /// Our word as we have left it.
    #[inline]
    fn word(&self) -> u64 {
        self.pos | if self.copying { COPYING } else { 0 }
    }

    /// Consumes `n` bytes that have been copied out. The full fence in it lets the caller look for a writer
    /// that waits for space next.
    #[inline]
    pub fn advance(&mut self, reader: &Reader, n: usize) -> Result<Advance, Lie> {
        loop {
            let word = self.word();
            // SYNC head: who sees the writer's mark sees where copies begin, also when the exchange fails.
            match reader.head.compare_exchange(word, word + n as u64, Ordering::SeqCst, Ordering::Acquire) {
                Ok(_) => {
                    fence_after_rmw();
                    self.pos += n as u64;
                    return Ok(Advance::Done);
                }
                // The writer has begun to copy: it marks our word once.
                Err(now) if now == self.pos | COPYING && !self.copying => self.copying = true,
                Err(_) => return if self.is_frozen(reader)? { Ok(Advance::Frozen) } else { Err(Lie) },
            }
        }
    }

    /// Whether the stretch that this end is in has been ended. Looks only at the reader's own word, whose position
    /// nobody but the reader may move: a program that is told of bytes by a moved one would look for them for ever.
    #[inline]
    pub fn is_frozen(&mut self, reader: &Reader) -> Result<bool, Lie> {
        let word = reader.head.load(Ordering::Acquire);
        if word & POSITION != self.pos || self.copying && word & COPYING == 0 {
            return Err(Lie);
        }
        self.copying = word & COPYING != 0;
        Ok(word & FROZEN != 0)
    }

    /// Between stretches the reader's word is frozen, wherever. Nobody but the reader may thaw it.
    #[inline]
    pub fn is_outside(&self, reader: &Reader) -> bool {
        reader.head.load(Ordering::Acquire) & FROZEN != 0
    }

    /// Ends the stretch at the present position. The unread bytes will come by kernel. The full fence lets the
    /// caller look for what was published before the writer could know.
    pub fn freeze(&mut self, reader: &Reader) {
        // SYNC head: the writer marks the word before it sends a copy, so either we see the mark or it sees the end.
        let word = reader.head.fetch_or(FROZEN, Ordering::SeqCst);
        self.copying |= word & COPYING != 0;
        fence_after_rmw();
    }

    /// Leaves a complete stretch whose last byte has been read.
    pub fn leave(&mut self, reader: &Reader) {
        reader.head.store(self.pos | FROZEN, Ordering::SeqCst);
        self.copying = false;
    }

    /// Of an ended stretch there are no copies any more.
    pub fn forget_copies(&mut self) {
        self.copying = false;
    }
}
