//! The reading end of a ring.

use crate::{PATIENCE, PeerViolation};
use sidestep_abi::link::{COPYING, FROZEN, POSITION, Reader, Writer};
use sidestep_abi::sync::{Ordering, fence_after_rmw};

/// Result of an attempt to consume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// The bytes are consumed.
    Done,
    /// The reader has left the stretch before these bytes. They will come by kernel, and the caller must discard them.
    Frozen,
}

/// A stretch that the writer has announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Number of the stretch in its direction, from 1.
    pub epoch: u32,
    /// Position of its first byte.
    pub from: u64,
}

impl Stretch {
    /// Whether the stretch ended before the reader could enter it. Its bytes come by kernel.
    #[inline]
    pub fn is_cancelled(&self, reader: &Reader) -> bool {
        reader.head.load(Ordering::Acquire) == self.from | FROZEN
    }

    /// Whether the stretch is complete, and the kernel carries copies of all its bytes. Then its ring is not needed.
    pub fn is_all_in_kernel(&self, writer: &Writer) -> bool {
        // SYNC complete
        let complete = writer.complete.load(Ordering::Acquire) == self.epoch;
        let length = writer.tail.load(Ordering::Acquire).wrapping_sub(self.from);
        complete && writer.copied.load(Ordering::Relaxed) == length
    }
}

/// Number of bytes that the writer has published after position `from`: at most the size of the ring.
#[inline]
pub fn published_after(writer: &Writer, from: u64, size: usize) -> Result<usize, PeerViolation> {
    // SYNC tail
    let n = writer.tail.load(Ordering::Acquire).wrapping_sub(from);
    if n > size as u64 { Err(PeerViolation::Tail) } else { Ok(n as usize) }
}

/// Distance of the byte at `position` from the writer's base. Any value is safe: [`crate::Data`] wraps it.
#[inline]
pub fn distance(writer: &Writer, position: u64) -> u64 {
    // SYNC tail: the base belongs to the tail that was read before.
    position.wrapping_sub(writer.base.load(Ordering::Relaxed))
}

/// Whether the writer has moved the base beyond `position`: the ring does not hold that byte any more.
pub fn is_base_beyond(writer: &Writer, position: u64) -> bool {
    writer.base.load(Ordering::Relaxed) > position
}

/// What the reader knows of its ring. `Default`: a direction that has never had a stretch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Input {
    /// Next position to read.
    pub pos: u64,
    /// Number of the last stretch that was entered, or found cancelled.
    pub epoch: u32,
    /// The writer is known to send copies of the unread bytes of this stretch.
    copying: bool,
    /// The reader's word before [`Input::freeze`].
    thawed: u64,
}

impl Input {
    /// The reading end of a direction that is at `pos`.
    pub fn at_position(pos: u64) -> Input {
        Input { pos, ..Input::default() }
    }

    /// Goes on in the stretch that another process has entered, and whose bytes it has consumed up to `pos`, or further. None: it has
    /// entered none, or has left it.
    pub fn found(writer: &Writer, reader: &Reader, pos: u64) -> Option<Input> {
        for _ in 0..PATIENCE {
            let word = reader.head.load(Ordering::Acquire);
            let epoch = writer.epoch.load(Ordering::Acquire);
            if word & FROZEN != 0 || epoch == 0 {
                return None;
            }
            let pos = pos.max(word & POSITION);
            let found = Input { pos, epoch, copying: word & COPYING != 0, thawed: word };
            if reader.head.compare_exchange(word, found.word(), Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                return Some(found);
            }
        }
        None
    }

    /// Behind the stretch that another process has left, which the writer may not have noticed yet. `seen`: number of the last stretch of
    /// which that process has noticed the end. None: it has left none, or the writer has announced another one since.
    pub fn found_left(writer: &Writer, reader: &Reader, seen: u32) -> Option<Input> {
        let word = reader.head.load(Ordering::Acquire);
        // SYNC stretch
        let epoch = writer.epoch.load(Ordering::Acquire);
        let (pos, from) = (word & POSITION, writer.ring_from.load(Ordering::Relaxed));
        // The word of a reader that has not entered yet has a position that lies elsewhere.
        let is_within = from < pos && pos <= writer.tail.load(Ordering::Acquire);
        let is_left = word & FROZEN != 0 && epoch != 0 && (seen == epoch || is_within);
        is_left.then_some(Input { pos, epoch, copying: false, thawed: word })
    }

    /// The announced stretch, if this end has not handled it yet.
    #[inline]
    pub fn announced(&self, writer: &Writer) -> Option<Stretch> {
        // SYNC stretch
        let epoch = writer.epoch.load(Ordering::Acquire);
        if epoch == self.epoch {
            return None;
        }
        Some(Stretch { epoch, from: writer.ring_from.load(Ordering::Relaxed) })
    }

    /// Enters the stretch at `pos`: its beginning, or a later position if the reader has read some of the kernel's copies.
    /// False: the stretch had been cancelled.
    pub fn enter(&mut self, reader: &Reader, stretch: Stretch) -> Result<bool, PeerViolation> {
        self.epoch = stretch.epoch;
        for _ in 0..PATIENCE {
            let word = reader.head.load(Ordering::Relaxed);
            if word == stretch.from | FROZEN {
                return Ok(false);
            }
            // The mark counts only if it was set for this stretch.
            let copying = word == stretch.from | FROZEN | COPYING;
            if word & FROZEN == 0 || self.pos != stretch.from && !copying {
                return Err(PeerViolation::Head);
            }
            let entered = self.pos | if copying { COPYING } else { 0 };
            if reader.head.compare_exchange(word, entered, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                self.copying = copying;
                return Ok(true);
            }
        }
        Err(PeerViolation::Unsettled)
    }

    /// Bytes that can be read now.
    #[inline]
    pub fn available(&self, writer: &Writer, size: usize) -> Result<usize, PeerViolation> {
        published_after(writer, self.pos, size)
    }

    /// Whether the tail of this stretch does not move any more. After this the caller looks at the tail once more.
    #[inline]
    pub fn is_complete(&self, writer: &Writer) -> bool {
        // SYNC complete
        writer.complete.load(Ordering::Acquire) == self.epoch
    }

    /// Whether the kernel is known to carry copies of bytes of this stretch ([`Input::is_frozen`] finds out).
    pub fn is_copying(&self) -> bool {
        self.copying
    }

    /// Distance of the next byte from the writer's base.
    #[inline]
    pub fn at(&self, writer: &Writer) -> u64 {
        distance(writer, self.pos)
    }

    /// The value of the reader's word that this end has left there.
    #[inline]
    fn word(&self) -> u64 {
        self.pos | if self.copying { COPYING } else { 0 }
    }

    /// Consumes `n` bytes that the caller has copied out. Ends with a full fence, so that the caller can look for a writer that
    /// waits for space.
    #[inline]
    pub fn advance(&mut self, reader: &Reader, n: usize) -> Result<Advance, PeerViolation> {
        loop {
            let word = self.word();
            // SYNC head: a reader that sees the writer's mark sees where copies begin, also when the exchange fails.
            match reader.head.compare_exchange(word, word + n as u64, Ordering::SeqCst, Ordering::Acquire) {
                Ok(_) => {
                    fence_after_rmw();
                    self.pos += n as u64;
                    return Ok(Advance::Done);
                }
                // The writer has begun to copy. It marks the word once.
                Err(now) if now == self.pos | COPYING && !self.copying => self.copying = true,
                Err(_) => return if self.is_frozen(reader)? { Ok(Advance::Frozen) } else { Err(PeerViolation::Head) },
            }
        }
    }

    /// Whether the reader's word says that the stretch has been left. Only the reader may move the position in its word. Waits
    /// look at that word: if a peer moved the position, they would report bytes that no read finds.
    #[inline]
    pub fn is_frozen(&mut self, reader: &Reader) -> Result<bool, PeerViolation> {
        let word = reader.head.load(Ordering::Acquire);
        if word & POSITION != self.pos || self.copying && word & COPYING == 0 {
            return Err(PeerViolation::Head);
        }
        self.copying = word & COPYING != 0;
        Ok(word & FROZEN != 0)
    }

    /// Whether the reader's word is frozen, as it is between stretches. Only the reader may thaw it.
    #[inline]
    pub fn is_outside(&self, reader: &Reader) -> bool {
        reader.head.load(Ordering::Acquire) & FROZEN != 0
    }

    /// Leaves the stretch at the present position. The unread bytes will come by kernel. Ends with a full fence: the caller can
    /// then look for bytes that were published before the writer could see the end. `has_copies`: whether the kernel has, or will
    /// have, a copy of a byte that this end has read; asked once the writer's mark has been seen.
    ///
    /// Without such copies the mark goes. At the beginning of a stretch the word would else be the one of a reader that has not
    /// entered yet ([`crate::Output::is_waiting`]).
    pub fn freeze(&mut self, reader: &Reader, has_copies: impl Fn(&Input) -> bool) {
        // SYNC head: the writer marks the word before it sends a copy. Either this exchange sees the mark, or the writer
        // sees the end.
        let mut word = reader.head.load(Ordering::Acquire);
        for _ in 0..PATIENCE {
            self.copying |= word & COPYING != 0;
            let mark = if self.copying && has_copies(self) { word & COPYING } else { 0 };
            match reader.head.compare_exchange(
                word,
                word & !COPYING | mark | FROZEN,
                Ordering::SeqCst,
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    (self.thawed, self.copying) = (word, mark != 0);
                    break;
                }
                Err(now) => word = now, // the writer marks the word once
            }
        }
        fence_after_rmw();
    }

    /// Takes [`Input::freeze`] back: the writer looks at this word no more, as the stretch is complete.
    pub fn thaw(&mut self, reader: &Reader) {
        self.copying = self.thawed & COPYING != 0;
        reader.head.swap(self.word(), Ordering::SeqCst);
    }

    /// Leaves a complete stretch whose last byte has been read.
    pub fn leave(&mut self, reader: &Reader) {
        // An exchange: if the stretch is one that was refused, the writer may just have marked the word.
        reader.head.swap(self.pos | FROZEN, Ordering::SeqCst);
        self.copying = false;
    }

    /// Records that the ended stretch has no copies any more.
    pub fn end_copies(&mut self) {
        self.copying = false;
    }
}
