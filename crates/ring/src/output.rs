//! The writing end of a ring.

use crate::{Lie, PATIENCE};
use sidestep_abi::link::{COPYING, FROZEN, POSITION, Reader, Writer};
use sidestep_abi::sync::{Ordering, fence};

/// What the reader's word says of the present stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// Everything before this position is consumed; the reader goes on.
    At(u64),
    /// The stretch ended here; what was written after it must travel by kernel.
    Frozen(u64),
}

/// The writer's private knowledge of its ring. `Default` is a direction that has never had a stretch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Output {
    /// Position after the last published byte.
    pub tail: u64,
    /// Position at offset 0 of the ring.
    pub base: u64,
    /// Where this stretch began.
    pub from: u64,
    /// Last consumed position that the reader told.
    head: u64,
    /// The reader's word when the stretch was announced: as long as it is unchanged, the reader has not come.
    before: u64,
    epoch: u32,
}

impl Output {
    /// Announces a stretch of ring from position `pos` on.
    ///
    /// The previous stretch, if any, must have ended and been noticed by the reader (`Side::seen_epoch`), and
    /// `pos` must lie beyond its end, so that the reader's word tells old and new apart.
    pub fn begin(&mut self, writer: &Writer, reader: &Reader, pos: u64) -> Result<(), Lie> {
        let before = reader.head.load(Ordering::Relaxed);
        if before & FROZEN == 0 || before & POSITION == pos {
            return Err(Lie);
        }
        *self = Output { tail: pos, base: pos, from: pos, head: pos, before, epoch: self.epoch + 1 };
        writer.base.store(pos, Ordering::Relaxed);
        writer.tail.store(pos, Ordering::Relaxed);
        writer.ring_from.store(pos, Ordering::Relaxed);
        writer.sent_to.store(pos, Ordering::Relaxed);
        // SYNC stretch: whoever sees the number sees where the stretch begins.
        writer.epoch.store(self.epoch, Ordering::Release);
        Ok(())
    }

    /// Number of the present stretch.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Bytes that can be written without looking at the reader again.
    #[inline]
    pub fn space(&self, size: usize) -> usize {
        size - (self.tail - self.head) as usize
    }

    /// Published and not consumed, as far as known.
    #[inline]
    pub fn unread(&self) -> u64 {
        self.tail - self.head
    }

    /// What `word` of the reader says. A lie is a position outside of what was published and not yet consumed.
    #[inline]
    fn read(&self, word: u64) -> Result<Head, Lie> {
        // A reader that has not come yet: its word is the old one, or our own mark on it ([`Output::is_waiting`]).
        if word == self.before || word == self.from | FROZEN | COPYING {
            return if self.head == self.from { Ok(Head::At(self.from)) } else { Err(Lie) };
        }
        let pos = word & POSITION;
        if pos < self.head || pos > self.tail {
            return Err(Lie);
        }
        Ok(if word & FROZEN != 0 { Head::Frozen(pos) } else { Head::At(pos) })
    }

    /// Looks at the reader's word.
    #[inline]
    pub fn look(&mut self, reader: &Reader) -> Result<Head, Lie> {
        // SYNC head: bytes before this position have been copied out.
        let head = self.read(reader.head.load(Ordering::Acquire))?;
        let (Head::At(pos) | Head::Frozen(pos)) = head;
        self.head = pos;
        Ok(head)
    }

    /// Whether the stretch still waits for its reader.
    pub fn is_waiting(&self, reader: &Reader) -> bool {
        let word = reader.head.load(Ordering::Acquire);
        word == self.before || word == self.from | FROZEN | COPYING
    }

    /// Moves the base to the present position when the ring is empty, so that small traffic always uses the
    /// same, warm, first bytes of the ring. Call after `look`.
    #[inline]
    pub fn rebase(&mut self, writer: &Writer) {
        if self.head == self.tail {
            self.base = self.tail;
            writer.base.store(self.tail, Ordering::Relaxed);
        }
    }

    /// Distance of the next byte from the base: what [`crate::Data`] wants.
    #[inline]
    pub fn at(&self) -> u64 {
        self.tail - self.base
    }

    /// Makes `n` bytes, already copied, visible. The full fence lets the caller look for sleepers next.
    #[inline]
    pub fn publish(&mut self, writer: &Writer, n: usize) {
        self.tail += n as u64;
        // SYNC tail: the bytes and the base are written before the position that covers them.
        writer.tail.store(self.tail, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Before copies of unread bytes are sent by kernel: says from which position on. That is the answer, unless the
    /// stretch has ended meanwhile ([`Head::Frozen`]). The reader's word is marked in the same step in which nobody
    /// has read further or ended the stretch: so both ends know the same position, or both know that it has ended.
    pub fn mark_copying(&mut self, writer: &Writer, reader: &Reader) -> Result<Head, Lie> {
        for _ in 0..PATIENCE {
            let word = reader.head.load(Ordering::Acquire);
            let head = self.read(word)?;
            let (Head::At(pos) | Head::Frozen(pos)) = head;
            self.head = pos;
            if head == Head::Frozen(pos) {
                return Ok(head);
            }
            let marked = pos | COPYING | if word & FROZEN != 0 { FROZEN } else { 0 };
            // SYNC head: whoever sees the mark sees the position.
            writer.resume.store(pos, Ordering::Relaxed);
            if reader.head.compare_exchange(word, marked, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                return Ok(head);
            }
        }
        Err(Lie)
    }

    /// The stretch is complete: nothing more is published in it. `copied`: bytes of it that the kernel carries, too.
    pub fn complete(&self, writer: &Writer, copied: u64) {
        writer.copied.store(copied, Ordering::Relaxed);
        // SYNC complete: what follows is sent by kernel after this, so whoever reads it finds this said.
        writer.complete.store(self.epoch, Ordering::Release);
        fence(Ordering::SeqCst);
    }
}
