//! The words of one side about its end of a connection. Those of one direction are in [`crate::Half`].

use sidestep_abi::link::Side;
use sidestep_abi::sync::Ordering;

/// Makes the peer ring this side's doorbell of `place` for the connection.
pub fn add_doorbell(side: &Side, place: u32) {
    side.doorbells.fetch_or(1 << place, Ordering::SeqCst);
}

/// Undoes [`add_doorbell`].
pub fn remove_doorbell(side: &Side, place: u32) {
    side.doorbells.fetch_and(!(1 << place), Ordering::SeqCst);
}

/// Bitmap of this side's waiters to ring for the connection.
#[inline]
pub fn doorbells(side: &Side) -> u64 {
    side.doorbells.load(Ordering::SeqCst)
}

/// The socket's descriptor in the process of this side.
pub fn number(side: &Side) -> u32 {
    side.number.load(Ordering::Relaxed)
}

/// Stores the socket's descriptor.
pub fn set_number(side: &Side, number: u32) {
    side.number.store(number, Ordering::Relaxed);
}

/// Whether this side may wait where no doorbell is heard.
pub fn is_away(side: &Side) -> bool {
    side.away.load(Ordering::Relaxed) != 0
}

/// Records that this side may wait where no doorbell is heard.
pub fn set_away(side: &Side) {
    side.away.store(1, Ordering::SeqCst);
}

/// Records that this side hears doorbells again. False: it was not away.
pub fn clear_away(side: &Side) -> bool {
    side.away.swap(0, Ordering::SeqCst) != 0
}
