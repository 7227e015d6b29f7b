//! When to look again at writers that were found without space. Their readers may have stalled, so no wait lasts longer, and a set
//! that other connections keep busy looks too.

use sidestep_sys::clock::Due;

/// A reader that takes nothing for so long has stalled, unless it was found out before to be slow whatever carries
/// ([`sidestep_conn::Stall`]): the kernel's larger buffers take over.
pub const STALL_US: u64 = 20_000;
/// After so long a look at a writer without space finds out.
pub const STALLED_US: u64 = STALL_US + 1000;

/// Not set: there are no such writers.
static DUE: Due = Due::new();

/// Some writer has something to send that did not fit; whoever waits next looks after it.
pub fn expect_space() {
    DUE.set(STALLED_US);
}

/// Whether some writer waits for space.
pub fn expects_space() -> bool {
    DUE.is_set()
}

/// Whether it is time to look at them.
#[inline]
pub fn has_come() -> bool {
    DUE.has_come()
}

/// Whether there may be any. From now on there are none, as far as is known.
pub fn claim() -> bool {
    DUE.claim()
}
