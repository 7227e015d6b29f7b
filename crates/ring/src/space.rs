//! Waiting for space: the writer leaves a wish, then looks; the reader advances, then looks for a wish.

use sidestep_abi::link::Writer;
use sidestep_abi::sync::{Ordering, fence, fence_after_rmw};

/// The ring is full, and the writer wants to be told of space. A look at the reader's word ([`crate::Output::look`])
/// must follow: space that came before the wish is not announced.
#[inline]
pub fn wish(writer: &Writer) {
    writer.wants_space.store(1, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// Whether a ring with so many unread bytes has room enough to wake its writer: half of it.
#[inline]
pub fn is_enough(unread: usize, size: usize) -> bool {
    unread <= size / 2
}

/// The reader has advanced ([`crate::Input::advance`], fully fenced) and left so many bytes unread. True: the
/// writer must be told now, and only once.
#[inline]
#[must_use]
pub fn grant(writer: &Writer, unread: usize, size: usize) -> bool {
    if writer.wants_space.load(Ordering::Relaxed) == 0 || !is_enough(unread, size) {
        return false;
    }
    // An exchange: a plain store could come to be seen after the writer's next wish, and wipe it out.
    writer.wants_space.swap(0, Ordering::SeqCst);
    fence_after_rmw();
    true
}
