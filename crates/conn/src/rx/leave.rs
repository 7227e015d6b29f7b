//! A reader that permits no further stretch: it leaves the ring, refuses a stretch, or enters the last one ahead of its turn.

use super::{Read, Reset, Rx};
use sidestep_abi::link::POSITION;
use sidestep_abi::sync::spin_loop;
use sidestep_ring::{Half, Input, PATIENCE, PeerViolation};

impl Rx {
    /// A direction whose reading end was another process, which has left the last stretch. It stays left where that process has left it,
    /// and counts as handled. None: there is no such stretch.
    pub fn found_left(half: Half) -> Option<Rx> {
        let input = Input::found_left(half.writer, half.reader, half.seen())?;
        let mut found = Rx { input, ..Rx::default() };
        found.remember_tail(half, input.pos);
        Some(found)
    }

    /// Leaves the ring for good: the writer sends the unread bytes by kernel, and begins no other stretch. The caller then
    /// rings the writer's doorbells.
    pub fn leave_ring(&mut self, half: Half) -> Result<(), PeerViolation> {
        half.withdraw_readiness();
        let left = self.refuse(half);
        half.hint_freeze();
        left
    }

    /// The kernel has reported a reset, and the program is told: whatever it has not read is lost, in rings, too.
    pub fn break_off(&mut self, half: Half) -> Result<(), PeerViolation> {
        self.reset = Reset::Told;
        self.leave_ring(half)
    }

    /// After this end has left the ring for good: learns how many copies the kernel has, or will have, unless the writer is sending some
    /// just now. It has claimed that, and whoever claims it later looks first, and sends no copies any more.
    pub fn count_copies(&mut self, half: Half) -> Result<(), PeerViolation> {
        if !self.expects_copies() || !half.claim_sending() {
            return Ok(());
        }
        let counted = self.unsent(half);
        half.has_sent();
        counted.map(drop)
    }

    /// Leaves the present stretch if the kernel has copies of all its unread bytes. One look at the kernel then sees these
    /// bytes and those that follow. `queued`: length of the kernel's queue.
    pub fn leave_for_copies(&mut self, half: Half, queued: u64) -> Result<bool, PeerViolation> {
        if !self.is_last_of_ring(half) || !self.input.is_copying() {
            return Ok(false);
        }
        let unread = self.input.available(half.writer, half.size)?;
        let have_arrived = self.copies.have_arrived(&self.input, half, unread, queued)?;
        if have_arrived {
            self.freeze(half)?;
        }
        Ok(!self.in_ring)
    }

    /// Whether the kernel has all bytes up to `expected` that this end has not read, and no copies of bytes that it has.
    /// `queued`: length of the kernel's queue here. `sent`: position up to which the writer says that it has given all bytes to
    /// the kernel. Some of these may still be in the writer's queue, which belongs to the kernel as well.
    pub fn is_in_kernel(&self, expected: u64, queued: u64, sent: u64) -> bool {
        !self.expects_copies() && self.pos().saturating_add(queued).max(sent) >= expected
    }

    /// Position up to which the writer has given all bytes to the kernel that this end has not read in rings. `sent`: number of
    /// the stream's bytes that the writer counts as the kernel's. It does not count those of stretches that it has copied.
    pub fn sent_by_kernel(&self, half: Half, sent: u64) -> u64 {
        sent.saturating_add(self.ring).max(half.has_sent_to().unwrap_or(0))
    }

    /// Whether a reader without this library lacks something: bytes that only the ring has; or of a stretch that this end has left,
    /// and that was not handed over, the writer never sends the rest, or copies may come that this end would have to discard.
    /// `last`: length of the kernel's queue, if the kernel gets nothing more.
    pub fn is_cut_off(&self, half: Half, last: Option<u64>) -> bool {
        let is_left = || half.is_left_unsent() && self.published(half) > self.pos();
        let is_lost = || is_left() || last.is_some_and(|queued| queued < self.on_its_way());
        let lacks = !self.in_ring && !self.is_handed_over && (self.expects_copies() || is_lost());
        lacks || self.is_kept_in_ring(half) && self.unread(half) > 0
    }

    /// Leaves the stretch at the present position: all unread bytes will come by kernel. No effect on a stretch whose bytes can
    /// only be read in the ring ([`Rx::is_kept_in_ring`]).
    pub fn freeze(&mut self, half: Half) -> Result<(), PeerViolation> {
        if !self.in_ring || self.is_kept_in_ring(half) {
            return Ok(());
        }
        let copies = self.copies;
        self.input.freeze(half.reader, |input| copies.are_of_read_bytes(input, half));
        for _ in 0..PATIENCE {
            if self.leave_frozen(half)? {
                break;
            }
            spin_loop();
        }
        Ok(()) // a writer that has no turn just now: the next read looks again
    }

    /// The reader's word is frozen: leaves the stretch, or stays in it if the writer has not seen that, and never sends the
    /// unread bytes by kernel. False: the writer decides just now. If it sees the word, it takes its mark back.
    pub(super) fn leave_frozen(&mut self, half: Half) -> Result<bool, PeerViolation> {
        if !half.is_left_unsent() {
            return self.leave(half).map(|()| true);
        }
        let is_kept = self.is_kept_in_ring(half);
        if is_kept {
            self.input.thaw(half.reader);
        }
        Ok(is_kept)
    }

    /// Whether the stretch that this end is in, or that comes next, is complete: no further byte comes by its ring.
    pub fn is_next_complete(&self, half: Half) -> bool {
        let next =
            if self.in_ring { Some(self.input.epoch) } else { self.input.announced(half.writer).map(|s| s.epoch) };
        next.is_some_and(|epoch| half.is_complete(epoch))
    }

    /// Whether this end is in a stretch whose last bytes the writer never sends by kernel ([`Half::leave_unsent`]).
    pub fn is_kept_in_ring(&self, half: Half) -> bool {
        self.is_last_of_ring(half) && half.is_left_unsent()
    }

    /// Leaves the present stretch as [`Rx::freeze`], or one that is announced and that this end has not entered.
    pub fn refuse(&mut self, half: Half) -> Result<(), PeerViolation> {
        self.enter_ahead(half)?;
        self.freeze(half)
    }

    /// Enters a stretch that has begun although kernel bytes before it are unread, so that the writer sends no copies by
    /// kernel. The caller has withdrawn readiness before, so that no other stretch begins.
    pub fn enter_ahead(&mut self, half: Half) -> Result<(), PeerViolation> {
        let Read::Kernel(_) = self.next(half)? else { return Ok(()) };
        let Some(stretch) = self.input.announced(half.writer).filter(|_| !self.in_ring) else { return Ok(()) };
        if stretch.from < self.input.pos || stretch.from > POSITION {
            return Err(PeerViolation::RingFrom);
        }
        let ahead = stretch.from - self.input.pos;
        self.input.pos = stretch.from;
        let entered = self.enter(half, stretch);
        if self.in_ring {
            self.ahead = ahead;
        } else {
            self.input.pos -= ahead; // the stretch was cancelled before
        }
        entered
    }
}
