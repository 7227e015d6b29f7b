//! The words by which the two ends of a direction, and the broker, agree where stretches begin and end.

use crate::Half;
use sidestep_abi::link::FROZEN;
use sidestep_abi::sync::{Ordering, fence, fence_after_rmw};

impl Half<'_> {
    /// Declares that the reading side reads rings.
    pub fn set_ready(&self) {
        // SYNC wanted
        self.reading_side.ready.store(1, Ordering::SeqCst);
    }

    /// Declares that the reading side wants no further stretch. If the writer has begun one meanwhile, the reader sees that
    /// stretch after this call, and refuses it.
    pub fn withdraw_readiness(&self) {
        // SYNC wanted: an exchange, fully fenced, against `Half::is_still_ready`.
        self.reading_side.ready.swap(0, Ordering::SeqCst);
        fence_after_rmw();
    }

    /// Whether the reading side wants no stretch. Then the writer ends its stretch.
    pub fn is_unwanted(&self) -> bool {
        self.reading_side.ready.load(Ordering::Acquire) == 0
    }

    /// Whether the reading side still wants the stretch that the writer has just announced.
    pub fn is_still_ready(&self) -> bool {
        // SYNC wanted: the reader withdraws, fences and looks for a stretch; the writer announces, fences and looks here.
        fence(Ordering::SeqCst);
        self.reading_side.ready.load(Ordering::Relaxed) != 0
    }

    /// Tells the writer to look at this direction. The change must be visible before the hint: otherwise a writer that looks
    /// between the two would not look again.
    pub fn hint_freeze(&self) {
        self.reading_side.froze.fetch_add(1, Ordering::SeqCst);
        fence_after_rmw();
    }

    /// Number of hints to the writer.
    #[inline]
    pub fn hints(&self) -> u32 {
        self.reading_side.froze.load(Ordering::Acquire)
    }

    /// Ends the stretch in the reader's place, at the reader's position: it is gone, or the writer will send the rest by kernel. Hints
    /// that to the writer. False: the direction was frozen already.
    pub fn freeze(&self) -> bool {
        // SYNC head: the writer sees it at its next look at `head`.
        if self.reader.head.fetch_or(FROZEN, Ordering::SeqCst) & FROZEN != 0 {
            return false;
        }
        self.hint_freeze();
        true
    }

    /// Records that the reader has noticed the end of stretch `epoch`: the writer may begin another one.
    #[inline]
    pub fn set_seen(&self, epoch: u32) {
        // SYNC noticed: the reader has read `tail` before the writer may move it for a new stretch.
        self.reading_side.seen_epoch.store(epoch, Ordering::Release);
    }

    /// The last stretch whose end the reader has noticed.
    pub fn seen(&self) -> u32 {
        // SYNC noticed
        self.reading_side.seen_epoch.load(Ordering::Acquire)
    }
}
