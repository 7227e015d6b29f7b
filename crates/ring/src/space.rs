//! Waiting for space: the writer leaves a wish, then looks; the reader advances, then looks for a wish.

use sidestep_abi::link::Writer;
use sidestep_abi::sync::{Ordering, fence, fence_after_rmw};

/// The ring is full, and the writer wants to be told of space. A look at the reader's word ([`crate::Output::poll`])
/// must follow: nobody announces space that came before the wish.
#[inline]
pub fn wish(writer: &Writer) {
    writer.wants_space.store(1, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// Whether the writer still waits to be told of space.
#[inline]
pub fn is_wished(writer: &Writer) -> bool {
    writer.wants_space.load(Ordering::Acquire) != 0
}

/// Whether a ring with so many unread bytes has room enough to wake its writer: half of it.
#[inline]
pub fn is_enough(unread: usize, size: usize) -> bool {
    unread <= size / 2
}

/// The reader has advanced ([`crate::Input::advance`], fully fenced) and has left so many bytes unread. True: the
/// caller must tell the writer now. It is true once for each wish.
#[inline]
#[must_use]
pub fn grant(writer: &Writer, unread: usize, size: usize) -> bool {
    if writer.wants_space.load(Ordering::Relaxed) == 0 || !is_enough(unread, size) {
        return false;
    }
    // An exchange: a plain store could become visible after the writer's next wish, and wipe it out.
    writer.wants_space.swap(0, Ordering::SeqCst);
    fence_after_rmw();
    true
}
