//! Which carrier the next byte of a connection takes.
//!
//! Each direction is a sequence of stretches, carried by `kernel` or by `ring`; positions count its bytes from
//! the beginning, whatever carried them. The writer begins a stretch of ring, and ends it by copies: the unread bytes go by
//! kernel, too, and the reader discards there what it has had from the ring ([`sidestep_abi::link::COPYING`]). The reader
//! can leave at any time, at its exact position ([`sidestep_abi::link::FROZEN`]); the writer then sends by kernel what
//! was not read. No I/O and no waiting here: the caller moves the bytes and reports what moved.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod phase;
mod rest;
mod rx;
pub mod spin;
mod stall;
mod tx;

pub use phase::{Event, Phase};
pub use rest::Rest;
pub use rx::{Read, Rx};
pub use sidestep_ring::{Advance, Lie};
pub use spin::Spin;
pub use stall::Stall;
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
    /// Of the side that writes it.
    pub writing_side: &'m Side,
    /// Bytes of the ring.
    pub size: usize,
}

impl Half<'_> {
    /// For whoever is about to send unread bytes of this direction by kernel: nobody else does until [`Half::has_sent`].
    /// False: somebody does.
    pub fn claim_sending(&self) -> bool {
        // SYNC sends: whoever claims it sees how far it went.
        self.writing_side.sends.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Whether somebody has claimed it.
    pub fn is_being_sent(&self) -> bool {
        self.writing_side.sends.load(Ordering::Relaxed) != 0
    }

    pub fn has_sent(&self) {
        // SYNC sends
        self.writing_side.sends.store(0, Ordering::Release);
    }

    /// The reading side wants no further stretch. A stretch that the writer has begun meanwhile is seen from here
    /// on, for [`Rx::refuse`].
    pub fn withdraw_readiness(&self) {
        // SYNC ready: an exchange, fully fenced, against `Tx::begin`.
        self.reading_side.ready.swap(0, Ordering::SeqCst);
        fence_after_rmw();
    }

    /// Whether the reading side wants no ring: its writer ends the stretch, if there is one.
    pub fn is_unwanted(&self) -> bool {
        self.reading_side.ready.load(Ordering::Acquire) == 0
    }

    /// Tells the writer to look at this direction: only after there is something to see, or a writer who looks in between
    /// believes to know all.
    pub fn hint_freeze(&self) {
        self.reading_side.froze.fetch_add(1, Ordering::SeqCst);
        fence_after_rmw();
    }
}
