//! What one side says of its end of a connection as a whole. The words of one direction are [`crate::Half`]'s.

use sidestep_abi::link::Side;
use sidestep_abi::sync::Ordering;

/// Has the peer ring this side's doorbell of `place` for the connection.
pub fn add_doorbell(side: &Side, place: u32) {
    side.doorbells.fetch_or(1 << place, Ordering::SeqCst);
}

/// Takes that back.
pub fn remove_doorbell(side: &Side, place: u32) {
    side.doorbells.fetch_and(!(1 << place), Ordering::SeqCst);
}

/// The places of this side to ring for the connection, a bit each.
#[inline]
pub fn doorbells(side: &Side) -> u64 {
    side.doorbells.load(Ordering::SeqCst)
}

/// The socket's number in the process of this side.
pub fn number(side: &Side) -> u32 {
    side.number.load(Ordering::Relaxed)
}

/// The socket has this number from now on.
pub fn set_number(side: &Side, number: u32) {
    side.number.store(number, Ordering::Relaxed);
}

/// Whether this side may wait in ways that hear no doorbell.
pub fn is_away(side: &Side) -> bool {
    side.away.load(Ordering::Relaxed) != 0
}

/// This side may wait in ways that hear no doorbell, from now on.
pub fn set_away(side: &Side) {
    side.away.store(1, Ordering::SeqCst);
}

/// This side hears doorbells again. False: it had not been away.
pub fn clear_away(side: &Side) -> bool {
    side.away.swap(0, Ordering::SeqCst) != 0
}
