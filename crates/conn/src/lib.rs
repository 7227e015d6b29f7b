//! Which carrier the next byte of a connection takes.
//!
//! Each direction is a sequence of stretches, carried by `kernel` or by `ring`; positions count its bytes from
//! the beginning, whatever carried them. The writer begins a stretch of ring; anybody can end one, at the exact
//! position the reader has reached ([`sidestep_abi::link::FROZEN`]), and the writer then sends what was not
//! consumed by kernel. No I/O and no waiting here: the caller moves the bytes and reports what moved.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

mod rx;
mod tx;

pub use rx::{Read, Rx};
pub use sidestep_ring::{Advance, Lie};
pub use tx::{Tx, Write};

use sidestep_abi::link::{Reader, Side, Writer};
use sidestep_abi::sync::{Ordering, fence_after_rmw};

/// The shared words of one direction, seen from either end.
#[derive(Clone, Copy, Debug)]
pub struct Half<'m> {
    pub writer: &'m Writer,
    pub reader: &'m Reader,
    /// Of the side that reads this direction.
    pub reading_side: &'m Side,
    /// Bytes of the ring.
    pub size: usize,
}

impl Half<'_> {
    /// The reading side wants no further stretch. A stretch that the writer has begun meanwhile is seen from here
    /// on, for [`Rx::refuse`].
    pub fn withdraw_readiness(&self) {
        // SYNC ready: an exchange, fully fenced, against `Tx::begin`.
        self.reading_side.ready.swap(0, Ordering::SeqCst);
        fence_after_rmw();
    }

    /// Tells the writer that its stretch has been ended: only after it has been, or a writer who looks in between
    /// believes to know all.
    pub fn hint_freeze(&self) {
        self.reading_side.froze.fetch_add(1, Ordering::SeqCst);
        fence_after_rmw();
    }
}
