//! Bytes on their way back from a ring to the kernel. The peer sends them within microseconds, unless the kernel takes
//! no more of them and the peer is busy elsewhere meanwhile: then whoever waits for them reminds it.

use crate::fdtable::{self, Kind};
use crate::record::Conn;
use crate::{arena, nudge};
use core::sync::atomic::{AtomicU64, Ordering::*};
use sidestep_sys::{arch, clock};

/// How long a wait goes on before it reminds the peer.
const AFTER_US: u64 = 10_000;

/// When to remind, in ticks; 0: nothing is expected.
static DUE: AtomicU64 = AtomicU64::new(0);

/// A wait begins for bytes that the peer is to send by kernel.
#[cold]
pub fn expect() {
    let due = arch::ticks() + clock::ticks_of_us(AFTER_US);
    let _ = DUE.compare_exchange(0, due, Relaxed, Relaxed);
}

/// How long to sleep at most: `cap`, or less while such bytes are expected.
pub fn cap(cap: Option<u64>) -> Option<u64> {
    match DUE.load(Relaxed) {
        0 => cap,
        _ => Some(cap.unwrap_or(AFTER_US).min(AFTER_US)),
    }
}

/// The same for a wait on certain connections, of which `concerns` tells whether they are among those that wait: others
/// sleep on undisturbed.
pub fn cap_if(cap: Option<u64>, concerns: impl FnOnce() -> bool) -> Option<u64> {
    if DUE.load(Relaxed) != 0 && concerns() { self::cap(cap) } else { cap }
}

/// Whether the peer of this connection has bytes to send by kernel.
pub fn awaits(c: &Conn) -> bool {
    c.is_attached() && c.with_rx(|rx| rx.on_its_way() > 0).unwrap_or(false)
}

/// After a sleep: reminds the peers of all connections that still wait, if it is time.
pub fn remind() {
    let due = DUE.load(Relaxed);
    if due == 0 || arch::ticks() < due || DUE.compare_exchange(due, 0, Relaxed, Relaxed).is_err() {
        return;
    }
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
