//! Sending unread bytes of a stretch by kernel. The writer does it, or the reader in its place, but only one at a time.

use crate::Half;
use sidestep_abi::sync::{Ordering, fence};

/// Value of `sent_to` for bytes that are never sent. No stream is that long.
const NEVER_SENT: u64 = u64::MAX;

impl Half<'_> {
    /// Claims the sending of unread bytes until [`Half::has_sent`]. False: the other side has claimed it.
    pub fn claim_sending(&self) -> bool {
        // SYNC sends: the claimant sees how far the other side went.
        self.writing_side.sends.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Whether the sending is claimed.
    pub fn is_being_sent(&self) -> bool {
        self.writing_side.sends.load(Ordering::Relaxed) != 0
    }

    /// Releases the claim.
    pub fn has_sent(&self) {
        // SYNC sends
        self.writing_side.sends.store(0, Ordering::Release);
    }

    /// Position up to which unread bytes have been sent by kernel.
    pub fn sent_to(&self) -> u64 {
        self.writer.sent_to.load(Ordering::Relaxed)
    }

    /// The same. None: the writer has called [`Half::leave_unsent`].
    pub fn has_sent_to(&self) -> Option<u64> {
        let position = self.sent_to();
        (position != NEVER_SENT).then_some(position)
    }

    /// Stores the position up to which unread bytes have been sent by kernel.
    pub fn set_sent_to(&self, position: u64) {
        self.writer.sent_to.store(position, Ordering::Relaxed);
    }

    /// A process that was killed had sent unread bytes up to this position, as the kernel says. If it has not stored that, it had the
    /// claim, which ends here. For whoever does its work, while the other side sends nothing.
    pub fn found_sent(&self, position: u64) {
        if self.is_being_sent() && self.sent_to() < position {
            self.set_sent_to(position);
            self.has_sent();
        }
    }

    /// Records that the unread bytes of this stretch are never sent by kernel: they are for a reader in the ring. The caller
    /// holds [`Half::claim_sending`].
    /// Ends with a full fence: the writer then looks at the reader's word.
    pub fn leave_unsent(&self) {
        self.set_sent_to(NEVER_SENT);
        fence(Ordering::SeqCst);
    }

    /// Whether the writer has called [`Half::leave_unsent`].
    pub fn is_left_unsent(&self) -> bool {
        self.sent_to() == NEVER_SENT
    }

    /// Position of the first byte of which the kernel carries a copy, once the reader has seen the writer's mark.
    pub fn resume(&self) -> u64 {
        // SYNC head: the position belongs to the mark that was seen.
        self.writer.resume.load(Ordering::Relaxed)
    }

    /// Number of bytes of a complete stretch that the kernel carries as well.
    pub fn copied(&self) -> u64 {
        self.writer.copied.load(Ordering::Relaxed)
    }
}
