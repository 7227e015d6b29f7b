//! Leaving the ring that we read: its writer sends the unread bytes by kernel.

use super::stretch;
use crate::link;
use crate::record::Conn;
use core::sync::atomic::Ordering::*;
use sidestep_abi::Reason;
use sidestep_conn::{Course, PeerViolation, Rx};

/// Leaves the ring at the present position: its writer sends the unread bytes by kernel.
pub fn leave_ring(c: &Conn, rx: &mut Rx) -> Result<(), PeerViolation> {
    rx.leave_ring(c.rx_half())
}

/// Moves the direction that we read to the kernel for good, for a reader that reads natively from now on. Unread bytes that the
/// writer has not sent by kernel yet arrive later.
pub fn rx_to_kernel(c: &Conn, reason: Reason) {
    give_rx_up(c, reason, |rx| leave_ring(c, rx));
}

/// As [`rx_to_kernel`], once the ring has been read: no readable byte becomes unreadable for a moment.
pub fn rx_to_kernel_once_read(c: &Conn, reason: Reason) {
    give_rx_up(c, reason, |_| {
        c.rx_half().withdraw_readiness();
        c.rx_half().hint_freeze();
        Ok(())
    });
}

fn give_rx_up(c: &Conn, reason: Reason, leave: impl FnOnce(&mut Rx) -> Result<(), PeerViolation>) {
    c.keep();
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
    // The writer may wait at any waiter, and some of its waits may be unknown here: ring all its doorbells.
    link::get(c.link.load(Relaxed)).notify_all(c.slot.load(Relaxed) as usize);
}

/// A thread waits to read, or to write, or both, and hears no doorbell since none is free: moves these directions to the kernel for good.
#[cold]
pub fn what_is_awaited(c: &Conn, fd: i32, (to_read, to_write): (bool, bool)) {
    if to_read && (c.phase.phase().permits_rings() || hears_rings(c)) {
        rx_to_kernel(c, Reason::Places);
    }
    if to_write && (c.phase.phase().permits_rings() || c.course.is(Course::Ring)) {
        stretch::leave_ring(c, fd, Reason::Places);
    }
}

/// Whether the peer may write into a ring that we read, now or later.
pub fn hears_rings(c: &Conn) -> bool {
    c.is_attached() && (!c.rx_half().is_unwanted() || c.with_rx(|rx| rx.in_ring()).unwrap_or(false))
}
