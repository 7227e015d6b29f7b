//! Waiting for space: the writer stores a wish, then looks; the reader advances, then looks for a wish.

use sidestep_abi::link::Writer;
use sidestep_abi::sync::{Ordering, fence, fence_after_rmw};

/// The ring is full, and the writer wishes to be told of space. It must look at the reader's word afterwards
/// ([`crate::Output::poll`]): space from before the wish is not announced.
#[inline]
pub fn wish(writer: &Writer) {
    writer.wants_space.store(1, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// Whether the writer's wish is still there.
#[inline]
pub fn is_wished(writer: &Writer) -> bool {
    writer.wants_space.load(Ordering::Acquire) != 0
}

/// Whether a ring with this many unread bytes has enough space to wake its writer: half of the ring.
#[inline]
pub fn is_enough(unread: usize, size: usize) -> bool {
    unread <= size / 2
}

/// The reader has advanced ([`crate::Input::advance`], fully fenced) and has left this many bytes unread. True: the caller must
/// tell the writer now. It is true once for each wish.
#[inline]
#[must_use]
pub fn grant(writer: &Writer, unread: usize, size: usize) -> bool {
    if writer.wants_space.load(Ordering::Relaxed) == 0 || !is_enough(unread, size) {
        return false;
    }
    // An exchange: a plain store could become visible after the writer's next wish, and erase it.
    writer.wants_space.swap(0, Ordering::SeqCst);
    fence_after_rmw();
    true
}
