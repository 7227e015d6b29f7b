//! A reader that permits no further stretch: it leaves the ring, refuses a stretch, or enters the last one ahead of its turn.

use super::{Read, Reset, Rx};
use sidestep_abi::link::POSITION;
use sidestep_ring::{Half, Input, PeerViolation};

impl Rx {
    /// Leaves the ring for good: the writer sends the unread bytes by kernel, and begins no other stretch. The caller then
    /// rings the writer's doorbells.
    pub fn leave_ring(&mut self, half: Half) -> Result<(), PeerViolation> {
        half.withdraw_readiness();
        let left = self.refuse(half).and_then(|()| self.freeze(half));
        half.hint_freeze();
        left
    }

    /// The kernel has reported a reset, and the program is told: whatever it has not read is lost, in rings, too.
    pub fn break_off(&mut self, half: Half) -> Result<(), PeerViolation> {
        self.reset = Reset::Told;
        self.leave_ring(half)
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
        Ok(have_arrived)
    }

    /// Whether the kernel has all bytes up to `expected` that this end has not read, and no copies of bytes that it has.
    /// `queued`: length of the kernel's queue here. `sent`: number of the stream's bytes that the writer says it has given to
    /// the kernel. Some of these may still be in the writer's queue, which belongs to the kernel as well.
    pub fn is_in_kernel(&self, expected: u64, queued: u64, sent: u64) -> bool {
        let here = self.pos().saturating_add(queued);
        !self.expects_copies() && here.max(sent.saturating_add(self.ring)) >= expected
    }

    /// Whether a stretch that this end has left, and that was not handed over, lacks something: the writer never sends the
    /// rest, or copies may come that this end would have to discard.
    pub fn is_cut_off(&self, half: Half) -> bool {
        !self.in_ring && !self.is_handed_over && (self.expects_copies() || half.is_left_unsent())
    }

    /// Leaves the stretch at the present position: all unread bytes will come by kernel.
    pub fn freeze(&mut self, half: Half) -> Result<(), PeerViolation> {
        if self.in_ring {
            self.input.freeze(half.reader);
            self.leave(half)?;
        }
        Ok(())
    }

    /// Cancels an announced stretch that this end has not entered: enters it, and ends it at its beginning.
    pub fn refuse(&mut self, half: Half) -> Result<(), PeerViolation> {
        if let Some(stretch) = self.input.announced(half.writer) {
            let mut probe = Input::at_position(stretch.from);
            if probe.enter(half.reader, stretch)? {
                // This end has read no byte of it in the ring, so the kernel carries no copies.
                probe.leave(half.reader);
            }
            self.input.epoch = stretch.epoch;
            self.notice(half, stretch.from);
        }
        Ok(())
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
