//! The reading end of a direction.

mod leave;

use crate::copies::Copies;
use sidestep_ring::input::{distance, is_base_beyond, published_after};
use sidestep_ring::{Advance, Half, Input, PATIENCE, PeerViolation, Stretch};

/// Where to read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// From the kernel, at most this many bytes.
    Kernel(u64),
    /// From the ring: this many bytes (0: none yet).
    Ring(usize),
    /// The kernel's next bytes are copies of bytes that the ring has delivered. They must be discarded first
    /// ([`Rx::discardable`]).
    Copies,
}

/// What is known of a reset of the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Reset {
    #[default]
    Unknown,
    /// The kernel has reported it, and bytes of the ring come before it.
    Kept,
    /// The program knows: it reads nothing more.
    Told,
}

/// State of the reading end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rx {
    input: Input,
    in_ring: bool,
    /// Number of the kernel's bytes that come before the present stretch. This end has entered the stretch ahead of them
    /// ([`Rx::enter_ahead`]), and has read nothing of the ring yet.
    ahead: u64,
    copies: Copies,
    /// Where this end left the last stretch, and the writer's tail at that moment. If the writer dies before it has sent the bytes
    /// between by kernel, they are still in the ring.
    drain_from: u64,
    drain_to: u64,
    /// The kernel has all bytes that were in a ring, and no stretch follows: the socket may be read without this library.
    is_handed_over: bool,
    reset: Reset,
    /// Bytes of the stream read from the kernel.
    pub kernel: u64,
    /// Bytes taken from the kernel, discarded copies included.
    pub socket: u64,
    /// Bytes read from rings.
    pub ring: u64,
    /// Number of stretches that this end has left.
    pub ended: u32,
}

impl Rx {
    /// A direction of which the program has read `pos` bytes, all by kernel.
    pub fn native(pos: u64) -> Rx {
        Rx { input: Input::at_position(pos), kernel: pos, socket: pos, ..Rx::default() }
    }

    /// A direction whose reading end was another process, which has read `pos` bytes at least. If it was in a stretch, this end is.
    pub fn found(half: Half, pos: u64) -> Rx {
        match Input::found(half.writer, half.reader, pos) {
            Some(input) => Rx { input, in_ring: true, ..Rx::default() },
            None => Rx::native(pos),
        }
    }

    /// Bytes of this direction delivered so far.
    pub fn pos(&self) -> u64 {
        self.input.pos - self.ahead
    }

    /// Whether this end is in a ring.
    pub fn in_ring(&self) -> bool {
        self.in_ring
    }

    /// Decides where to read next. Enters or leaves a stretch when that is due.
    #[inline]
    pub fn next(&mut self, half: Half) -> Result<Read, PeerViolation> {
        for _ in 0..PATIENCE {
            if self.in_ring {
                if let Some(read) = self.in_stretch(half)? {
                    return Ok(read);
                }
                continue;
            }
            if self.copies.is_expected() {
                return Ok(Read::Copies);
            }
            self.settle_copies(half)?; // only then the writer may begin another stretch
            let Some(stretch) = self.input.announced(half.writer) else {
                let outside = self.input.is_outside(half.reader);
                return if outside { Ok(Read::Kernel(u64::MAX)) } else { Err(PeerViolation::Head) };
            };
            if stretch.is_cancelled(half.reader) || stretch.is_all_in_kernel(half.writer) {
                // The stretch is over, so the kernel carries on, wherever the stretch began.
                self.input.epoch = stretch.epoch;
                self.notice(half, stretch.from);
                continue;
            }
            if self.input.pos < stretch.from {
                return Ok(Read::Kernel(stretch.from - self.input.pos));
            }
            self.enter(half, stretch)?;
        }
        Err(PeerViolation::Unsettled)
    }

    /// Enters a stretch at the present position. If the stretch began after this end had looked for one, this end may have read
    /// copies of the first bytes meanwhile. Then its position is behind the beginning.
    fn enter(&mut self, half: Half, stretch: Stretch) -> Result<(), PeerViolation> {
        self.copies.begin(stretch.from, self.input.pos);
        if self.input.pos > stretch.from {
            self.input.available(half.writer, half.size)?; // only published bytes can have been copied
        }
        self.in_ring = self.input.enter(half.reader, stretch)?;
        if !self.in_ring {
            self.notice(half, stretch.from);
        }
        Ok(())
    }

    /// What to read in the present stretch. None: this end has left it.
    #[inline]
    fn in_stretch(&mut self, half: Half) -> Result<Option<Read>, PeerViolation> {
        if self.input.is_frozen(half.reader)? {
            let is_decided = self.leave_frozen(half)?;
            return Ok((!is_decided).then_some(Read::Ring(0)));
        }
        if self.ahead > 0 {
            return Ok(Some(Read::Kernel(self.ahead)));
        }
        let n = self.input.available(half.writer, half.size)?;
        if n > 0 || !self.input.is_complete(half.writer) {
            return Ok(Some(Read::Ring(n)));
        }
        // The writer may have published the last bytes just before it completed the stretch.
        let n = self.input.available(half.writer, half.size)?;
        if n > 0 {
            return Ok(Some(Read::Ring(n)));
        }
        self.leave_complete(half).map(|()| None)
    }

    /// For peeks beyond the kernel's bytes: distance (as [`Rx::at`]) and number of the bytes of the next stretch.
    pub fn beyond(&self, half: Half) -> (u64, usize) {
        if self.ahead > 0 {
            return (self.at(half), self.unread(half));
        }
        let follows = |s: &Stretch| !self.in_ring && s.from >= self.input.pos;
        let Some(stretch) = self.input.announced(half.writer).filter(follows) else { return (0, 0) };
        let n = published_after(half.writer, stretch.from, half.size).unwrap_or(half.size);
        (distance(half.writer, stretch.from), n)
    }

    /// Whether this end is in a complete stretch: no further byte comes by this ring.
    pub fn is_last_of_ring(&self, half: Half) -> bool {
        self.in_ring && self.input.is_complete(half.writer)
    }

    /// Distance of the ring's next byte from the base.
    #[inline]
    pub fn at(&self, half: Half) -> u64 {
        self.input.at(half.writer)
    }

    /// The caller has copied `n` bytes out of the ring. On [`Advance::Frozen`] it must discard them.
    #[inline]
    pub fn took_ring(&mut self, half: Half, n: usize) -> Result<Advance, PeerViolation> {
        if self.input.advance(half.reader, n)? == Advance::Frozen {
            return Ok(Advance::Frozen);
        }
        self.ring += n as u64;
        Ok(Advance::Done)
    }

    /// The caller has read `n` bytes from the kernel.
    #[inline]
    pub fn took_kernel(&mut self, n: usize) {
        if self.ahead > 0 {
            self.ahead = self.ahead.saturating_sub(n as u64);
        } else {
            self.input.pos += n as u64;
        }
        self.kernel += n as u64;
        self.socket += n as u64;
    }

    /// How many bytes at the head of the kernel's queue are copies. The caller must discard them now, without looking at them.
    /// `queued`: length of the queue, asked before this call.
    pub fn discardable(&mut self, half: Half, queued: u64) -> Result<u64, PeerViolation> {
        self.settle_copies(half)?;
        Ok(self.copies.discardable(&self.input, half, self.in_ring)?.min(queued))
    }

    /// The caller has discarded `n` copies ([`Rx::discardable`]).
    pub fn discarded(&mut self, n: u64) {
        self.socket += n;
        self.copies.discard(n, self.in_ring);
    }

    /// The kernel says that the stream has ended: no copies come any more.
    pub fn end_copies(&mut self) {
        self.copies.end();
    }

    /// How many of the kernel's `queued` bytes are new: after the copies, and after the present stretch.
    pub fn news_in_kernel(&mut self, half: Half, queued: u64) -> u64 {
        if self.settle_copies(half).is_err() {
            return 0;
        }
        self.copies.news(&self.input, half, self.in_ring, queued)
    }

    /// The kernel has reported the end of the stream. Bytes that a dead writer left in the ring come first: returns their
    /// number; they are at [`Rx::at`]. The caller reports them with [`Rx::took_rest`].
    pub fn rest(&mut self, half: Half) -> Result<usize, PeerViolation> {
        if self.reset == Reset::Told {
            return Ok(0);
        }
        self.end_copies();
        if self.in_ring && self.input.is_frozen(half.reader)? && !self.leave_frozen(half)? {
            self.leave(half)?; // the writer was killed over its decision
        }
        if let Read::Ring(n) = self.next(half)? {
            return Ok(n);
        }
        self.end_copies();
        // Bytes before the end of the stretch were the kernel's. If they have not arrived, they are lost with the writer. If
        // the writer has begun another stretch, it had sent all of this one.
        let pos = self.input.pos;
        if self.is_handed_over || self.ahead > 0 || pos < self.drain_from || self.input.announced(half.writer).is_some()
        {
            return Ok(0);
        }
        // The writer may have written on before it learnt of the end.
        self.drain_to = half.tail();
        if is_base_beyond(half.writer, pos) {
            return Ok(0); // the writer was about to begin another stretch
        }
        let left = self.drain_to.saturating_sub(pos);
        if left > half.size as u64 { Err(PeerViolation::Tail) } else { Ok(left as usize) }
    }

    /// The caller has copied out `n` bytes of [`Rx::rest`].
    pub fn took_rest(&mut self, half: Half, n: usize) -> Result<Advance, PeerViolation> {
        if self.in_ring {
            return self.took_ring(half, n);
        }
        self.input.pos += n as u64;
        self.ring += n as u64;
        Ok(Advance::Done)
    }

    /// The kernel has reported a reset. True: bytes of the ring come before it, and the program learns of it after them.
    pub fn keeps_reset(&mut self, half: Half) -> bool {
        let is_kept = matches!(self.next(half), Ok(Read::Ring(1..)));
        if is_kept {
            self.reset = Reset::Kept;
        }
        is_kept
    }

    /// The program has read everything: whether it must be told of a reset now. `died_unread`: the peer has died before it had
    /// read what this end wrote.
    pub fn is_reset_due(&self, died_unread: impl FnOnce() -> bool) -> bool {
        match self.reset {
            Reset::Told => false,
            Reset::Kept => true,
            Reset::Unknown => died_unread(),
        }
    }

    /// Records that no ring carries any more, and that the kernel has had all bytes of the last one.
    pub fn hand_over(&mut self) {
        self.is_handed_over = !self.in_ring;
    }

    /// Position up to which bytes had been published when this end left the last stretch.
    pub fn drain_target(&self) -> u64 {
        self.drain_to
    }

    /// Position up to which the writer has published, according to its word now.
    pub fn published(&self, half: Half) -> u64 {
        // No caller may wait for a position beyond the ring's reach.
        published_after(half.writer, self.input.pos, half.size).map_or(0, |n| self.input.pos.wrapping_add(n as u64))
    }

    /// Whether the kernel's queue has, or may have, copies in it.
    pub fn expects_copies(&self) -> bool {
        self.copies.is_expected()
    }

    /// Whether copies are still to be discarded, or the writer is sending some.
    pub fn awaits_copies(&mut self, half: Half) -> bool {
        let _ = self.next(half);
        self.expects_copies() || self.input.is_copying() && !self.input.is_complete(half.writer)
    }

    /// Number of bytes that were in the ring when this end left it, and that it has not read since.
    pub fn on_its_way(&self) -> u64 {
        if self.in_ring || self.is_handed_over { 0 } else { self.drain_to.saturating_sub(self.input.pos) }
    }

    /// For a writer that does nothing: the bytes of the last stretch that it has not sent by kernel. Returns their position,
    /// their distance from the base, and their number. The caller holds [`Half::claim_sending`].
    pub fn unsent(&mut self, half: Half) -> Result<(u64, u64, usize), PeerViolation> {
        // A writer that has handled this stretch itself needs no help.
        if self.input.is_complete(half.writer) {
            return Ok((half.sent_to().max(self.drain_from), 0, 0));
        }
        self.left_behind(half)
    }

    /// As [`Rx::unsent`], also for a writer that knows that this end has left. It may have found no space in the kernel's buffers.
    pub fn left_behind(&mut self, half: Half) -> Result<(u64, u64, usize), PeerViolation> {
        let sent_to = half.sent_to();
        let from = sent_to.max(self.drain_from);
        if self.in_ring || half.is_left_unsent() || self.input.announced(half.writer).is_some() {
            return Ok((from, 0, 0));
        }
        let len = published_after(half.writer, from, half.size)?;
        // The writer sends copies before the rest, so the number of copies is known now.
        if self.copies.settle_by_sent(self.drain_from, sent_to)? {
            self.tell_noticed(half);
        }
        Ok((from, distance(half.writer, from), len))
    }

    /// Number of bytes in the ring that this end has not read. 0: the ring does not carry.
    pub fn unread(&self, half: Half) -> usize {
        if self.in_ring { self.input.available(half.writer, half.size).unwrap_or(0) } else { 0 }
    }

    /// Leaves a stretch at the present position, where the reader's word is frozen. Copies follow by kernel from where the
    /// writer began them, if it did.
    fn leave(&mut self, half: Half) -> Result<(), PeerViolation> {
        if self.input.is_copying() {
            let has_copies = self.copies.leave(&self.input, half)?;
            self.input.end_copies();
            if !has_copies {
                self.input.leave(half.reader);
            }
        }
        self.left(half);
        Ok(())
    }

    /// Leaves a stretch of which this end has read everything.
    fn leave_complete(&mut self, half: Half) -> Result<(), PeerViolation> {
        self.copies.leave_complete(&self.input, half)?;
        self.input.leave(half.reader);
        self.left(half);
        Ok(())
    }

    fn left(&mut self, half: Half) {
        self.in_ring = false;
        self.ended += 1;
        self.remember_tail(half, self.input.pos);
        self.input.pos -= core::mem::take(&mut self.ahead);
        if self.copies.is_settled() {
            self.tell_noticed(half);
        }
    }

    /// Learns the number of copies, if the writer has stored it. Only then another stretch, with other copies, may begin.
    fn settle_copies(&mut self, half: Half) -> Result<(), PeerViolation> {
        if self.copies.settle(&self.input, half)? {
            self.tell_noticed(half);
        }
        Ok(())
    }

    /// This end does not enter a stretch, which counts as left at `end`.
    fn notice(&mut self, half: Half, end: u64) {
        self.remember_tail(half, end);
        self.tell_noticed(half);
    }

    /// Stores the tail of a stretch that this end left at `end`. It is clamped to what a ring holds, so that no caller waits for
    /// more.
    fn remember_tail(&mut self, half: Half, end: u64) {
        let n = published_after(half.writer, end, half.size).unwrap_or(0);
        (self.drain_from, self.drain_to) = (end, end.wrapping_add(n as u64));
    }

    /// Permits the writer to begin another stretch. `drain_to` has been stored before.
    fn tell_noticed(&self, half: Half) {
        half.set_seen(self.input.epoch);
    }
}
