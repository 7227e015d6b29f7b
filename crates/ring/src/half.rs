//! One direction as seen by either end or by the broker, with the functions that need no lock.

use sidestep_abi::link::{FROZEN, POSITION, Reader, Side, Slot, Writer};
use sidestep_abi::sync::Ordering;

/// Values of the word `fin`.
const FIN: u32 = 1;
const SHUT: u32 = 2;

/// The shared words of one direction.
#[derive(Clone, Copy, Debug)]
pub struct Half<'m> {
    /// Words that the writer writes.
    pub writer: &'m Writer,
    /// Words that the reader writes.
    pub reader: &'m Reader,
    /// Of the side that reads this direction.
    pub reading_side: &'m Side,
    /// Of the side that writes it.
    pub writing_side: &'m Side,
    /// Bytes of the ring.
    pub size: usize,
}

impl<'m> Half<'m> {
    /// The direction that side `writing` writes.
    #[inline]
    pub fn of(slot: &'m Slot, writing: usize, size: usize) -> Half<'m> {
        Half {
            writer: &slot.writer[writing],
            reader: &slot.reader[writing],
            reading_side: &slot.side[1 - writing],
            writing_side: &slot.side[writing],
            size,
        }
    }

    /// Whether the ring carries and holds bytes for the reader.
    #[inline]
    pub fn has_bytes(&self) -> bool {
        // A word that is frozen, or was never used, differs from every tail.
        let head = self.reader.head.load(Ordering::Relaxed);
        head & FROZEN == 0 && self.writer.tail.load(Ordering::Acquire) != head & POSITION
    }

    /// Whether the ring carries and has room for a byte.
    pub fn has_space(&self) -> bool {
        let head = self.reader.head.load(Ordering::Acquire);
        let tail = self.writer.tail.load(Ordering::Relaxed);
        head & FROZEN == 0 && tail.wrapping_sub(head & POSITION) < self.size as u64
    }

    /// Whether the reader is in a stretch, and the writer has ended neither it nor the stream.
    #[inline]
    pub fn is_open(&self) -> bool {
        !self.has_fin() && self.has_begun() && self.reader.head.load(Ordering::Acquire) & FROZEN == 0
    }

    /// Position of the reader in the ring, if new bytes go into the ring. For callers that are no end of this direction.
    pub fn read_to(&self) -> Option<u64> {
        let head = self.reader.head.load(Ordering::Acquire);
        (self.has_begun() && head & FROZEN == 0).then_some(head & POSITION)
    }

    /// Whether the writer has begun a stretch and has not completed it. The reader may still read a complete stretch, but new
    /// bytes go by kernel.
    #[inline]
    fn has_begun(&self) -> bool {
        self.writer.complete.load(Ordering::Acquire) != self.writer.epoch.load(Ordering::Acquire)
    }

    /// Whether the tail of this stretch does not move any more.
    pub fn is_complete(&self, epoch: u32) -> bool {
        self.writer.complete.load(Ordering::Acquire) == epoch
    }

    /// Number of the last stretch.
    pub fn epoch(&self) -> u32 {
        self.writer.epoch.load(Ordering::Relaxed)
    }

    /// Tail: the writer has published everything before this position, according to its word.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.writer.tail.load(Ordering::Acquire)
    }

    /// Whether the writer has ended the stream after the published bytes.
    #[inline]
    pub fn has_fin(&self) -> bool {
        self.writer.fin.load(Ordering::Acquire) != 0
    }

    /// Announces that the stream ends after the published bytes.
    pub fn set_fin(&self) {
        self.writer.fin.fetch_max(FIN, Ordering::SeqCst);
    }

    /// As [`Half::set_fin`], and announces that the writer of this direction takes nothing more of the other one by kernel.
    pub fn set_shut(&self) {
        self.writer.fin.store(SHUT, Ordering::SeqCst);
    }

    /// Whether the writer has called [`Half::set_shut`].
    pub fn is_shut(&self) -> bool {
        self.writer.fin.load(Ordering::Acquire) == SHUT
    }

    /// Time when the writer last had news without ringing.
    #[inline]
    pub fn news_at(&self) -> u64 {
        self.writer.news_at.load(Ordering::Relaxed)
    }

    /// Stores that the writer has news, at `ticks`, and does not ring.
    #[inline]
    pub fn stamp(&self, ticks: u64) {
        self.writer.news_at.store(ticks, Ordering::Relaxed);
    }
}
