//! The time of the next look at writers that found no space, since their readers may have stalled. No wait sleeps beyond that
//! time. A set that other connections keep busy looks, too. A thread that sleeps in a set already is woken (`unrung.rs`).

use sidestep_sys::clock::Due;

/// A reader that takes nothing for this long has stalled: the kernel's larger buffers take over. A reader that was found to be
/// slow on any carrier is an exception ([`sidestep_conn::Stall`]).
pub const STALL_US: u64 = 20_000;
/// Time after which a look at a writer without space finds the stall.
pub const STALLED_US: u64 = STALL_US + 1000;

/// Unset: no writer waits for space.
static DUE: Due = Due::new();

/// A writer has unsent bytes that did not fit. The next wait looks at them.
pub fn expect_space() {
    DUE.set(STALLED_US);
}

/// Whether some writer waits for space.
pub fn expects_space() -> bool {
    DUE.is_set()
}

/// Whether the time of the look has come.
#[inline]
pub fn has_come() -> bool {
    DUE.has_come()
}

/// Whether writers may be waiting. Resets that.
pub fn claim() -> bool {
    DUE.claim()
}
