//! The writing end of a ring.

use crate::{PATIENCE, PeerViolation};
use sidestep_abi::link::{COPYING, FROZEN, POSITION, Reader, Writer};
use sidestep_abi::sync::{Ordering, fence};

/// What the reader's word says about the present stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// Everything before this position is consumed, and the reader goes on.
    At(u64),
    /// The stretch ended here. The kernel must carry the bytes after this position.
    Frozen(u64),
}

/// What the writer knows of its ring. `Default`: a direction that has never had a stretch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Output {
    /// Position after the last published byte.
    pub tail: u64,
    /// Position at offset 0 of the ring.
    pub base: u64,
    /// Position at which this stretch began.
    pub from: u64,
    /// The reader's position when the writer last looked.
    head: u64,
    /// The reader's word when the stretch was announced. While it is unchanged, the reader has not entered.
    before: u64,
    epoch: u32,
}

impl Output {
    /// Announces a stretch of ring from position `pos` on.
    ///
    /// The reader must have noticed the end of the previous stretch, if any (`Side::seen_epoch`), and `pos` must lie beyond
    /// that end, so that the reader's word tells old and new apart.
    pub fn begin(&mut self, writer: &Writer, reader: &Reader, pos: u64) -> Result<(), PeerViolation> {
        let before = reader.head.load(Ordering::Relaxed);
        if before & FROZEN == 0 || before & POSITION == pos {
            return Err(PeerViolation::Head);
        }
        *self = Output { tail: pos, base: pos, from: pos, head: pos, before, epoch: self.epoch + 1 };
        writer.base.store(pos, Ordering::Relaxed);
        writer.tail.store(pos, Ordering::Relaxed);
        writer.ring_from.store(pos, Ordering::Relaxed);
        writer.sent_to.store(pos, Ordering::Relaxed);
        // SYNC stretch: a reader that sees the number sees where the stretch begins.
        writer.epoch.store(self.epoch, Ordering::Release);
        Ok(())
    }

    /// Goes on with the stretch that another process has begun, and in which it has published the bytes up to `tail` or less. None:
    /// there is no such stretch. `has_entered`: the reader is known to have entered it.
    pub fn found(writer: &Writer, reader: &Reader, tail: u64, size: usize, has_entered: bool) -> Option<Output> {
        let epoch = writer.epoch.load(Ordering::Acquire);
        let (from, base) = (writer.ring_from.load(Ordering::Relaxed), writer.base.load(Ordering::Relaxed));
        if writer.complete.load(Ordering::Acquire) == epoch || base < from || tail < base {
            return None;
        }
        // A reader that has entered leaves no word like this.
        let before = if has_entered { from | FROZEN | COPYING } else { reader.head.load(Ordering::Relaxed) };
        let head = base.max(tail.saturating_sub(size as u64));
        let mut found = Output { tail, base, from, head, before, epoch };
        found.publish(writer, 0);
        Some(found)
    }

    /// A stretch that the reader has left before its end, as another process has noticed, which has published the bytes up to `tail` or
    /// less. The reader needs those from the second value on by kernel. None: there is no such stretch.
    pub fn found_left(writer: &Writer, reader: &Reader, tail: u64, size: usize) -> Option<(Output, u64)> {
        let epoch = writer.epoch.load(Ordering::Acquire);
        let (from, base) = (writer.ring_from.load(Ordering::Relaxed), writer.base.load(Ordering::Relaxed));
        let word = reader.head.load(Ordering::Acquire);
        let left = word & POSITION;
        let is_left = word & FROZEN != 0
            && word & COPYING == 0
            && (base.max(tail.saturating_sub(size as u64))..tail).contains(&left);
        if epoch == 0 || writer.complete.load(Ordering::Acquire) != epoch || base < from || !is_left {
            return None;
        }
        Some((Output { tail, base, from, head: left, before: word, epoch }, left))
    }

    /// Number of the present stretch.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Number of bytes that fit, according to the last look at the reader's word.
    #[inline]
    pub fn space(&self, size: usize) -> usize {
        size - (self.tail - self.head) as usize
    }

    /// Number of bytes that are published and not consumed, according to the last look.
    #[inline]
    pub fn unread(&self) -> u64 {
        self.tail - self.head
    }

    /// Interprets the reader's `word`. A position before the last one seen, or beyond the tail, is a violation.
    #[inline]
    fn read(&self, word: u64) -> Result<Head, PeerViolation> {
        // The reader has not entered yet: its word is still the old one, or our own mark on the old one
        // ([`Output::is_waiting`]).
        if word == self.before || word == self.from | FROZEN | COPYING {
            return if self.head == self.from { Ok(Head::At(self.from)) } else { Err(PeerViolation::Head) };
        }
        let pos = word & POSITION;
        if pos < self.head || pos > self.tail {
            return Err(PeerViolation::Head);
        }
        Ok(if word & FROZEN != 0 { Head::Frozen(pos) } else { Head::At(pos) })
    }

    /// Looks at the reader's word.
    #[inline]
    pub fn poll(&mut self, reader: &Reader) -> Result<Head, PeerViolation> {
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

    /// Moves the base to the present position if the ring is empty, so that small messages always use the same, warm, first
    /// bytes of the ring. Call it after [`Output::poll`].
    #[inline]
    pub fn rebase(&mut self, writer: &Writer) {
        if self.head == self.tail {
            self.base = self.tail;
            writer.base.store(self.tail, Ordering::Relaxed);
        }
    }

    /// Distance of the next byte from the base, for [`crate::Data`].
    #[inline]
    pub fn at(&self) -> u64 {
        self.tail - self.base
    }

    /// Publishes `n` bytes that the caller has copied. Ends with a full fence, so that the caller can look for sleepers.
    #[inline]
    pub fn publish(&mut self, writer: &Writer, n: usize) {
        self.tail += n as u64;
        // SYNC tail: the bytes and the base are written before the position that covers them.
        writer.tail.store(self.tail, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Announces the position from which on the writer sends copies of unread bytes by kernel, and returns it; or
    /// [`Head::Frozen`] if the stretch has ended meanwhile. The exchange fails if the reader has read further, or has ended the
    /// stretch. So both ends know the same position, or both know that the stretch has ended.
    pub fn mark_copying(&mut self, writer: &Writer, reader: &Reader) -> Result<Head, PeerViolation> {
        for _ in 0..PATIENCE {
            let word = reader.head.load(Ordering::Acquire);
            let head = self.read(word)?;
            let (Head::At(pos) | Head::Frozen(pos)) = head;
            self.head = pos;
            if head == Head::Frozen(pos) {
                return Ok(head);
            }
            let marked = pos | COPYING | if word & FROZEN != 0 { FROZEN } else { 0 };
            // SYNC head: a reader that sees the mark sees the position.
            writer.resume.store(pos, Ordering::Relaxed);
            if reader.head.compare_exchange(word, marked, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                return Ok(head);
            }
        }
        Err(PeerViolation::Unsettled)
    }

    /// Completes the stretch: the writer publishes nothing more in it. `copied`: number of its bytes that the kernel carries as
    /// well.
    pub fn complete(&self, writer: &Writer, copied: u64) {
        writer.copied.store(copied, Ordering::Relaxed);
        // SYNC complete: the writer sends later bytes by kernel after this store, so a reader that gets those bytes sees it.
        writer.complete.store(self.epoch, Ordering::Release);
        fence(Ordering::SeqCst);
    }
}
