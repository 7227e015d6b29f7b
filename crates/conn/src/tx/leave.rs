//! A writer whose unread bytes stay in the ring, or nowhere: it sends no copies of them, or no further ones.

use super::{Carrier, Tx};
use sidestep_ring::{Half, Head, PeerViolation};

impl Tx {
    /// Ends the stretch without copies: the unread bytes can only be read in the ring. For a direction whose kernel bytes the
    /// reader will not take any more.
    pub fn end_without_copies(&mut self, half: Half) -> Result<(), PeerViolation> {
        self.poll(half)?;
        match self.carrier {
            // A reader that has not entered the ring may be reading from the kernel, and needs copies there.
            Carrier::Ring if self.output.is_waiting(half.reader) => self.end(half)?,
            Carrier::Ring => self.complete(half, 0),
            Carrier::Copying { .. } => self.stop_copying(half),
            // A reader that has left the ring can get the bytes by kernel only.
            Carrier::TakeBack(_) | Carrier::Kernel => {}
        }
        Ok(())
    }

    /// As [`Tx::end_without_copies`], for a reader that reads in the ring to its end, as it takes nothing by kernel. A reader that
    /// has left the ring is not one: this end has unsent bytes then.
    pub fn end_in_ring(&mut self, half: Half) -> Result<(), PeerViolation> {
        let is_read = self.carrier == Carrier::Ring && !self.output.is_waiting(half.reader);
        if !is_read || !half.claim_sending() {
            return self.end_without_copies(half);
        }
        let kept = self.keep_unread(half);
        half.has_sent();
        kept
    }

    /// The kernel takes nothing more, because the reader is gone. Unsent bytes stay unsent.
    pub fn abandon(&mut self, half: Half) {
        self.stop_copying(half);
        self.carrier = Carrier::Kernel;
    }

    /// Sends no further copies: a reader in the ring has the bytes there. If the reader has left the ring, the bytes that it
    /// needs by kernel stay unsent. The same holds for bytes that the reader is sending to itself: if this end went on by
    /// kernel before they have arrived, the order of bytes would change.
    pub fn leave_in_ring(&mut self, half: Half) -> Result<(), PeerViolation> {
        if !self.has_unsent() || !half.claim_sending() {
            return Ok(());
        }
        let left = self.heed_deputy(half).and_then(|()| self.leave_claimed(half));
        half.has_sent();
        left
    }

    fn leave_claimed(&mut self, half: Half) -> Result<(), PeerViolation> {
        if !matches!(self.carrier, Carrier::Copying { .. }) {
            return Ok(()); // a reader that has left the ring can get the bytes by kernel only
        }
        self.keep_unread(half)
    }

    /// A reader that leaves the ring looks at the mark afterwards, and this end looks at the reader's word after it has set the mark:
    /// one of them at least sees the other. A reader that sees the mark waits until the stretch is complete. If the mark is still there
    /// then, it goes on in the ring. So this end takes the mark back first. The caller has claimed the sending.
    fn keep_unread(&mut self, half: Half) -> Result<(), PeerViolation> {
        let before = half.sent_to();
        half.leave_unsent();
        let looked = self.output.poll(half.reader);
        let stays = matches!(looked, Ok(Head::At(_))) && self.output.unread() > 0;
        if !stays {
            half.set_sent_to(before);
        }
        self.heed(half, looked?);
        match self.carrier {
            Carrier::Ring => self.complete(half, 0),
            _ => self.stop_copying(half),
        }
        Ok(())
    }

    /// As [`Tx::leave_in_ring`], without a look. The caller makes sure that nobody is sending.
    fn stop_copying(&mut self, half: Half) {
        if let Carrier::Copying { from, next } = self.carrier {
            self.complete(half, next - from);
        }
    }
}
