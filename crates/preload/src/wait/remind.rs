//! Bytes on their way back from a ring to the kernel. The peer sends them within microseconds, unless the kernel takes
//! no more of them and the peer is busy elsewhere meanwhile: then whoever waits for them reminds it.

use crate::fdtable::{self, Kind};
use crate::record::Conn;
use crate::{arena, nudge};
use sidestep_sys::clock::Due;

/// How long a wait goes on before it reminds the peer.
const AFTER_US: u64 = 10_000;

/// When to remind; not set: nothing is expected.
static DUE: Due = Due::new();

/// A wait begins for bytes that the peer is to send by kernel.
#[cold]
pub fn expect() {
    DUE.set(AFTER_US);
}

/// How long to sleep at most: `cap`, or less while such bytes are expected.
pub fn cap(cap: Option<u64>) -> Option<u64> {
    if DUE.is_set() { Some(cap.unwrap_or(AFTER_US).min(AFTER_US)) } else { cap }
}

/// The same for a wait on certain connections, of which `concerns` tells whether they are among those that wait: others
/// sleep on undisturbed.
pub fn cap_if(cap: Option<u64>, concerns: impl FnOnce() -> bool) -> Option<u64> {
    if DUE.is_set() && concerns() { self::cap(cap) } else { cap }
}

/// Whether the peer of this connection has bytes to send by kernel.
pub fn awaits(c: &Conn) -> bool {
    c.is_attached() && c.with_rx(|rx| rx.on_its_way() > 0).unwrap_or(false)
}

/// Before a look and after a sleep: reminds the peers of all connections that still wait, if it is time.
#[inline]
pub fn remind() {
    if DUE.has_come() && DUE.take() {
        remind_all();
    }
}

#[cold]
fn remind_all() {
    crate::errno::keep(|| {
        fdtable::for_each(|_, kind| {
            let Kind::Conn(index) = kind else { return };
            let c = arena::conn(index);
            if awaits(c) {
                nudge::peer(c);
                expect();
            }
        });
    });
}
