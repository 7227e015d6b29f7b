//! The reading end of a direction.

use crate::Half;
use sidestep_abi::link::POSITION;
use sidestep_abi::sync::Ordering;
use sidestep_ring::{Advance, Input, Lie, PATIENCE, Stretch};

/// Where to read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// From the kernel, at most this many bytes.
    Kernel(u64),
    /// From the ring: this many bytes are there (0: none yet).
    Ring(usize),
    /// The kernel's next bytes are copies of bytes that the ring has delivered: discard them first
    /// ([`Rx::discardable`]).
    Copies,
}

/// Copies that the kernel still has to deliver before bytes that are news.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Copies {
    #[default]
    None,
    /// So many.
    Exactly(u64),
    /// At most so many: how many, the writer says when it notices that we have left ([`Writer::complete`]).
    ///
    /// [`Writer::complete`]: sidestep_abi::link::Writer::complete
    AtMost(u64),
}

/// State of the reading end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rx {
    input: Input,
    in_ring: bool,
    /// Bytes of the kernel that come before the present stretch, which was entered ahead of them ([`Rx::enter_ahead`]).
    /// None of the ring has been read then.
    ahead: u64,
    /// Where the present stretch began.
    from: u64,
    /// Copies of bytes of the last stretch that were discarded already.
    discarded: u64,
    copies: Copies,
    /// Where the last stretch ended, and what was published then. Should the writer die before it has sent the
    /// bytes between by kernel, they are still in the ring.
    drain_from: u64,
    drain_to: u64,
    /// All that was in a ring is in the kernel, too, and no ring follows: it may be read there without our seeing it.
    is_handed_over: bool,
    /// Bytes of the stream read from the kernel.
    pub kernel: u64,
    /// Bytes taken from the kernel, discarded copies included.
    pub socket: u64,
    /// Bytes read from rings.
    pub ring: u64,
    /// Stretches that ended.
    pub ended: u32,
}

impl Rx {
    /// A direction of which the program has read `pos` bytes, all by kernel.
    pub fn native(pos: u64) -> Rx {
        Rx { input: Input::at_position(pos), kernel: pos, socket: pos, ..Rx::default() }
    }

    /// Bytes of this direction delivered so far.
    pub fn pos(&self) -> u64 {
        self.input.pos - self.ahead
    }

    /// Whether the ring carries now, as far as this end knows.
    pub fn in_ring(&self) -> bool {
        self.in_ring
    }

    /// Decides where to read next, entering or leaving a stretch when it is time.
    #[inline]
    pub fn next(&mut self, half: Half) -> Result<Read, Lie> {
        for _ in 0..PATIENCE {
            if self.in_ring {
                if let Some(read) = self.in_stretch(half)? {
                    return Ok(read);
                }
                continue;
            }
            if self.copies == Copies::AtMost(0) {
                self.settle_copies(half)?; // what it brings is no more than that another stretch may begin
            } else if self.copies != Copies::None {
                return Ok(Read::Copies);
            }
            let Some(stretch) = self.input.announced(half.writer) else {
                let outside = self.input.is_outside(half.reader);
                return if outside { Ok(Read::Kernel(u64::MAX)) } else { Err(Lie) };
            };
            if stretch.is_cancelled(half.reader) || is_all_in_kernel(half, stretch) {
                // Wherever it would have begun, the kernel carries on.
                self.input.epoch = stretch.epoch;
                self.notice(half, stretch.from);
                continue;
            }
            if self.input.pos < stretch.from {
                return Ok(Read::Kernel(stretch.from - self.input.pos));
            }
            self.enter(half, stretch)?;
        }
        Err(Lie)
    }

    /// Enters a stretch that has begun although the kernel has bytes before it: its writer has no reason any more to send by
    /// kernel what is in the ring. Readiness must have been withdrawn before, so that no other stretch begins.
    pub fn enter_ahead(&mut self, half: Half) -> Result<(), Lie> {
        let Read::Kernel(_) = self.next(half)? else { return Ok(()) };
        let Some(stretch) = self.input.announced(half.writer).filter(|_| !self.in_ring) else { return Ok(()) };
        let ahead = stretch.from.checked_sub(self.input.pos).filter(|_| stretch.from <= POSITION).ok_or(Lie)?;
        self.input.pos = stretch.from;
        let entered = self.enter(half, stretch);
        if self.in_ring {
            self.ahead = ahead;
        } else {
            self.input.pos -= ahead; // it had been cancelled
        }
        entered
    }

    /// Enters a stretch at our position. That is behind its beginning if it began after we had looked for one: then we have
    /// read copies, which are as good as the bytes themselves.
    fn enter(&mut self, half: Half, stretch: Stretch) -> Result<(), Lie> {
        (self.from, self.discarded) = (stretch.from, self.input.pos - stretch.from);
        if self.discarded > 0
            && half.writer.tail.load(Ordering::Acquire).wrapping_sub(self.input.pos) > half.size as u64
        {
            return Err(Lie);
        }
        self.in_ring = self.input.enter(half.reader, stretch)?;
        if !self.in_ring {
            self.notice(half, stretch.from);
        }
        Ok(())
    }

    /// What to read in the present stretch. None: it has ended, and has been left.
    #[inline]
    fn in_stretch(&mut self, half: Half) -> Result<Option<Read>, Lie> {
        if self.input.is_frozen(half.reader)? {
            self.leave(half)?;
            return Ok(None);
        }
        if self.ahead > 0 {
            return Ok(Some(Read::Kernel(self.ahead)));
        }
        let n = self.input.available(half.writer, half.size)?;
        if n > 0 || !self.input.is_complete(half.writer) {
            return Ok(Some(Read::Ring(n)));
        }
        // The last bytes may have come just before the end was said.
        let n = self.input.available(half.writer, half.size)?;
        if n > 0 {
            return Ok(Some(Read::Ring(n)));
        }
        self.leave_complete(half)?;
        Ok(None)
    }

    /// The bytes of a stretch that begins where the kernel's bytes end, for looks beyond these: where they lie (as
    /// [`Rx::at`]), and how many.
    pub fn beyond(&self, half: Half) -> (u64, usize) {
        if self.ahead > 0 {
            return (self.at(half), self.unread(half));
        }
        let ahead = |s: &Stretch| !self.in_ring && s.from >= self.input.pos;
        let Some(stretch) = self.input.announced(half.writer).filter(ahead) else { return (0, 0) };
        let n = half.writer.tail.load(Ordering::Acquire).wrapping_sub(stretch.from);
        let at = stretch.from.wrapping_sub(half.writer.base.load(Ordering::Relaxed));
        (at, n.min(half.size as u64) as usize)
    }

    /// Whether what follows the present stretch is in the kernel, if anything is: nothing more comes by this ring.
    pub fn is_last_of_ring(&self, half: Half) -> bool {
        self.in_ring && self.input.is_complete(half.writer)
    }

    /// Distance from the base of the next byte in the ring.
    #[inline]
    pub fn at(&self, half: Half) -> u64 {
        self.input.at(half.writer)
    }

    /// `n` bytes were copied out of the ring; on [`Advance::Frozen`] they must be forgotten.
    #[inline]
    pub fn took_ring(&mut self, half: Half, n: usize) -> Result<Advance, Lie> {
        let result = self.input.advance(half.reader, n)?;
        match result {
            Advance::Done => self.ring += n as u64,
            Advance::Frozen => self.leave(half)?,
        }
        Ok(result)
    }

    /// `n` bytes were read from the kernel.
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

    /// How many bytes of the kernel's queue are copies, to be discarded now, without a look at them. `queued`: the length
    /// of that queue, asked before this call.
    pub fn discardable(&mut self, half: Half, queued: u64) -> Result<u64, Lie> {
        self.settle_copies(half)?;
        let n = match self.copies {
            Copies::None if self.in_ring => self.copies_of_present(half)?,
            Copies::None => 0,
            // The writer says how many it has sent before it sends anything else, and had not said so when the queue's
            // length was asked: these are copies.
            Copies::Exactly(n) | Copies::AtMost(n) => n,
        };
        Ok(n.min(queued))
    }

    /// `n` copies ([`Rx::discardable`]) were discarded.
    pub fn discarded(&mut self, n: u64) {
        self.socket += n;
        if self.in_ring {
            self.discarded += n;
            return;
        }
        self.copies = match self.copies {
            Copies::Exactly(all) if all > n => Copies::Exactly(all - n),
            // If the writer has sent fewer it will say so; it has sent no more.
            Copies::AtMost(all) => {
                self.discarded += n;
                Copies::AtMost(all.saturating_sub(n))
            }
            _ => Copies::None,
        };
    }

    /// The kernel says that the stream has ended: no copies come any more.
    pub fn forget_copies(&mut self) {
        self.copies = Copies::None;
    }

    /// Bytes among `queued` of the kernel that are news, after the copies and after the present stretch.
    pub fn news_in_kernel(&mut self, half: Half, queued: u64) -> u64 {
        if self.settle_copies(half).is_err() {
            return 0;
        }
        match self.copies {
            Copies::Exactly(n) | Copies::AtMost(n) => queued.saturating_sub(n),
            Copies::None if !self.in_ring => queued,
            Copies::None if !self.input.is_complete(half.writer) => 0,
            Copies::None => queued.saturating_sub(self.copies_of_complete(half).unwrap_or(u64::MAX)),
        }
    }

    /// Leaves the present stretch if the kernel has copies of all that is unread in it, so that one look at the kernel sees
    /// these and what follows. `queued`: the length of the kernel's queue.
    pub fn leave_for_copies(&mut self, half: Half, queued: u64) -> Result<bool, Lie> {
        if !self.is_last_of_ring(half) || !self.input.is_copying() {
            return Ok(false);
        }
        let (read, unread) = (self.copied_so_far(half)?, self.input.available(half.writer, half.size)? as u64);
        let arrived = self.copies_of_complete(half)? == read + unread && queued >= read + unread;
        if arrived {
            self.freeze(half)?;
        }
        Ok(arrived)
    }

    /// Ends the stretch here: everything unread will come by kernel.
    pub fn freeze(&mut self, half: Half) -> Result<(), Lie> {
        if self.in_ring {
            self.input.freeze(half.reader);
            self.leave(half)?;
        }
        Ok(())
    }

    /// Cancels an announced stretch that has not been entered, by entering and ending it at its beginning.
    pub fn refuse(&mut self, half: Half) -> Result<(), Lie> {
        if let Some(stretch) = self.input.announced(half.writer) {
            let mut probe = Input::at_position(stretch.from);
            if probe.enter(half.reader, stretch)? {
                // What the kernel carries of it is no copy to us: we have read none of it in the ring.
                probe.leave(half.reader);
            }
            self.input.epoch = stretch.epoch;
            self.notice(half, stretch.from);
        }
        Ok(())
    }

    /// The kernel says that the stream has ended. Bytes that a dead writer left in the ring come first: returns
    /// how many, at [`Rx::at`]; report them with [`Rx::took_rest`].
    pub fn rest(&mut self, half: Half) -> Result<usize, Lie> {
        self.forget_copies();
        if let Read::Ring(n) = self.next(half)? {
            return Ok(n);
        }
        self.forget_copies();
        // What lies before the end of the stretch was the kernel's, and if it did not come it is lost with the writer.
        // A writer that has begun another stretch had sent all of this one.
        let pos = self.input.pos;
        if self.is_handed_over || self.ahead > 0 || pos < self.drain_from || self.input.announced(half.writer).is_some()
        {
            return Ok(0);
        }
        // The writer may have written on before it was told of the end.
        self.drain_to = half.writer.tail.load(Ordering::Acquire);
        if half.writer.base.load(Ordering::Relaxed) > pos {
            return Ok(0); // it was just beginning another
        }
        let left = self.drain_to.saturating_sub(pos);
        if left > half.size as u64 { Err(Lie) } else { Ok(left as usize) }
    }

    /// `n` bytes of [`Rx::rest`] were copied out.
    pub fn took_rest(&mut self, half: Half, n: usize) -> Result<Advance, Lie> {
        if self.in_ring {
            return self.took_ring(half, n);
        }
        self.input.pos += n as u64;
        self.ring += n as u64;
        Ok(Advance::Done)
    }

    /// No ring carries any more, and the kernel has had all that was left in the last one.
    pub fn hand_over(&mut self) {
        self.is_handed_over = !self.in_ring;
    }

    /// Position up to which bytes had been published when the last stretch ended.
    pub fn drain_target(&self) -> u64 {
        self.drain_to
    }

    /// Position up to which the writer has published, as it says now.
    pub fn published(&self, half: Half) -> u64 {
        let tail = half.writer.tail.load(Ordering::Acquire);
        // A position beyond the ring's reach is a lie; nobody waits for it.
        if tail.wrapping_sub(self.input.pos) > half.size as u64 { 0 } else { tail }
    }

    /// Whether the kernel's queue has, or may have, copies in it.
    pub fn expects_copies(&self) -> bool {
        !matches!(self.copies, Copies::None | Copies::AtMost(0))
    }

    /// Whether copies are to be discarded yet, or the writer is just sending some.
    pub fn awaits_copies(&mut self, half: Half) -> bool {
        let _ = self.next(half);
        self.expects_copies() || self.input.is_copying() && !self.input.is_complete(half.writer)
    }

    /// Bytes that were in the ring when we left it and have not been read since, by whichever carrier.
    pub fn on_its_way(&self) -> u64 {
        if self.in_ring || self.is_handed_over { 0 } else { self.drain_to.saturating_sub(self.input.pos) }
    }

    /// On behalf of a writer that does nothing: what it has not sent by kernel of the stretch that we have left, from which
    /// position on, at which distance from its base, and how many bytes. Call it after [`Half::claim_sending`].
    pub fn unsent(&mut self, half: Half) -> Result<(u64, u64, usize), Lie> {
        let sent_to = half.writer.sent_to.load(Ordering::Relaxed);
        let from = sent_to.max(self.drain_from);
        // A writer that has seen to this stretch itself needs nobody.
        if self.in_ring || self.input.is_complete(half.writer) || self.input.announced(half.writer).is_some() {
            return Ok((from, 0, 0));
        }
        let len = half.writer.tail.load(Ordering::Acquire).wrapping_sub(from);
        if len > half.size as u64 {
            return Err(Lie);
        }
        // Whatever the writer copied it had copied before: now it is known how much that was.
        if let Copies::AtMost(most) = self.copies {
            let resume = self.drain_from.wrapping_sub(most).wrapping_sub(self.discarded);
            let copied = sent_to.clamp(resume.min(self.drain_from), self.drain_from).wrapping_sub(resume);
            let left = copied.checked_sub(self.discarded).ok_or(Lie)?;
            self.copies = if left > 0 { Copies::Exactly(left.min(most)) } else { Copies::None };
            self.tell_noticed(half);
        }
        Ok((from, from.wrapping_sub(half.writer.base.load(Ordering::Relaxed)), len as usize))
    }

    /// We have sent to ourselves, on behalf of the writer, everything before this position.
    pub fn sent_to(&self, half: Half, position: u64) {
        half.writer.sent_to.store(position, Ordering::Relaxed);
    }

    /// Bytes published to us and not read, if the ring carries.
    pub fn unread(&self, half: Half) -> usize {
        if self.in_ring { self.input.available(half.writer, half.size).unwrap_or(0) } else { 0 }
    }

    /// Leaves a stretch that was ended at our position. The kernel goes on where the writer began to copy, if it did.
    fn leave(&mut self, half: Half) -> Result<(), Lie> {
        if self.input.is_copying() {
            let left = self.copied_so_far(half)?;
            self.input.forget_copies();
            if left == 0 && self.discarded == 0 {
                // We are where the copies begin: none of them is one to us.
                self.input.leave(half.reader);
            } else {
                self.copies = Copies::AtMost(left);
            }
        }
        self.left(half);
        Ok(())
    }

    /// Leaves a stretch whose bytes have all been read.
    fn leave_complete(&mut self, half: Half) -> Result<(), Lie> {
        let copies = self.copies_of_complete(half)?;
        if copies + self.discarded > self.input.pos - self.from {
            return Err(Lie);
        }
        if copies > 0 {
            self.copies = Copies::Exactly(copies);
        }
        self.input.leave(half.reader);
        self.left(half);
        Ok(())
    }

    fn left(&mut self, half: Half) {
        self.in_ring = false;
        self.ended += 1;
        self.remember_tail(half, self.input.pos);
        self.input.pos -= core::mem::take(&mut self.ahead);
        if !matches!(self.copies, Copies::AtMost(_)) {
            self.tell_noticed(half);
        }
    }

    /// Of the stretch that we are in: copies in the kernel's queue of bytes that we have read. (Copies of others are not to
    /// be discarded: we may yet leave the ring before those bytes.)
    fn copies_of_present(&self, half: Half) -> Result<u64, Lie> {
        if !self.input.is_copying() {
            return Ok(0);
        }
        let read = self.copied_so_far(half)?;
        if self.input.is_complete(half.writer) { Ok(read.min(self.copies_of_complete(half)?)) } else { Ok(read) }
    }

    /// Of a complete stretch: copies that were not discarded.
    fn copies_of_complete(&self, half: Half) -> Result<u64, Lie> {
        half.writer.copied.load(Ordering::Relaxed).checked_sub(self.discarded).ok_or(Lie)
    }

    /// Bytes before our position that the kernel carries, or will carry, as copies, and that were not discarded.
    fn copied_so_far(&self, half: Half) -> Result<u64, Lie> {
        // SYNC head: the position belongs to the mark that was seen.
        let resume = half.writer.resume.load(Ordering::Relaxed);
        if resume < self.from || resume > self.input.pos {
            return Err(Lie);
        }
        (self.input.pos - resume).checked_sub(self.discarded).ok_or(Lie)
    }

    /// Learns how many copies there are, if the writer has said so.
    fn settle_copies(&mut self, half: Half) -> Result<(), Lie> {
        let Copies::AtMost(most) = self.copies else { return Ok(()) };
        if !self.input.is_complete(half.writer) {
            return Ok(());
        }
        // Copies of what we have not read in the ring are none to us.
        let left = self.copies_of_complete(half)?.min(most);
        self.copies = if left > 0 { Copies::Exactly(left) } else { Copies::None };
        // Only now: another stretch would have another number of copies.
        self.tell_noticed(half);
        Ok(())
    }

    /// A stretch that we have never been in has ended, at `end`.
    fn notice(&mut self, half: Half, end: u64) {
        self.remember_tail(half, end);
        self.tell_noticed(half);
    }

    /// What was published when the stretch ended, at `end`.
    fn remember_tail(&mut self, half: Half, end: u64) {
        self.drain_from = end;
        let tail = half.writer.tail.load(Ordering::Acquire);
        // More than a ring holds is a lie, and nobody waits for it.
        self.drain_to = if tail.wrapping_sub(end) > half.size as u64 { end } else { tail };
    }

    /// From here on the writer may begin another stretch.
    fn tell_noticed(&self, half: Half) {
        // SYNC noticed: drain_to is read before the writer may move the tail for a new stretch.
        half.reading_side.seen_epoch.store(self.input.epoch, Ordering::Release);
    }
}

/// Whether the kernel carries copies of all bytes of a stretch that is complete: nobody needs its ring.
fn is_all_in_kernel(half: Half, stretch: Stretch) -> bool {
    // SYNC complete
    let complete = half.writer.complete.load(Ordering::Acquire) == stretch.epoch;
    let length = half.writer.tail.load(Ordering::Acquire).wrapping_sub(stretch.from);
    complete && half.writer.copied.load(Ordering::Relaxed) == length
}
