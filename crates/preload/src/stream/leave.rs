//! Giving up the ring that we read: its writer sends by kernel what we have not read.

use crate::link;
use crate::record::Conn;
use core::sync::atomic::Ordering::*;
use sidestep_abi::Reason;
use sidestep_conn::{Event, PeerViolation, Rx};

/// Leaves the ring that we read, where we are: its writer sends by kernel what we have not read.
pub fn leave_ring(c: &Conn, rx: &mut Rx) -> Result<(), PeerViolation> {
    rx.leave_ring(c.rx_half())
}

/// The direction that we read to the kernel for good, for somebody who reads natively from here on. What the writer has not
/// sent by kernel yet arrives later.
pub fn rx_to_kernel(c: &Conn, reason: Reason) {
    give_rx_up(c, reason, |rx| leave_ring(c, rx));
}

/// The same as soon as what is in the ring has been read: nothing that is readable now becomes unreadable for a moment.
pub fn rx_to_kernel_once_read(c: &Conn, reason: Reason) {
    give_rx_up(c, reason, |_| {
        c.rx_half().withdraw_readiness();
        c.rx_half().hint_freeze();
        Ok(())
    });
}

fn give_rx_up(c: &Conn, reason: Reason, leave: impl FnOnce(&mut Rx) -> Result<(), PeerViolation>) {
    c.phase.go(Event::Keep);
    if !c.is_attached() {
        return;
    }
    let was_in_ring = c.with_rx(|rx| {
        let was = rx.in_ring();
        let _ = leave(rx);
        was
    });
    if was_in_ring.is_ok_and(|was| was) {
        c.mark_returned();
    }
    c.blame(reason);
    // The writer may be waiting anywhere, or have a wait we do not know of: ring all its doorbells.
    link::get(c.link.load(Relaxed)).notify_all(c.slot.load(Relaxed) as usize);
}

/// Whether the peer may write, or begin to write, into a ring that we read.
pub fn hears_rings(c: &Conn) -> bool {
    c.is_attached() && (!c.rx_half().is_unwanted() || c.with_rx(|rx| rx.in_ring()).unwrap_or(false))
}
