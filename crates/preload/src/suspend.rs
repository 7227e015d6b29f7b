//! Suspension: both directions go to the kernel for a while.

use crate::record::Conn;
use crate::stream::stretch;
use crate::wait::Deadline;
use crate::{drain, link};
use core::sync::atomic::Ordering::*;
use sidestep_abi::Reason;
use sidestep_ring::side;
use sidestep_sys::clock;

/// Longest wait for a peer to send its unread bytes by kernel, before the connection goes to the kernel for good.
const SUSPEND_US: u64 = 20_000;

/// Moves both directions to the kernel until [`resume`]: the program may wait where no doorbell is heard. When this returns,
/// the kernel has every byte that can be read, or copies of it, or the end of the stream, which the rest of the ring precedes.
pub fn suspend(c: &'static Conn, fd: i32) {
    side::set_away(&c.words().side[c.my_side()]);
    hint_both(c);
    stretch::serve_all(); // the other end may be in this process, and its writer this very thread
    let deadline = Deadline::after_ns(Some(SUSPEND_US * 1000));
    let is_open =
        || c.with_rx(|rx| rx.published(c.rx_half()) > rx.pos() && !rx.is_next_complete(c.rx_half())).unwrap_or(false);
    while is_open() {
        if deadline.has_passed() {
            return drain::to_kernel(c, fd, Reason::NeverWaited);
        }
        clock::nap_us(200);
    }
}

/// Whether the connection is suspended.
pub fn is_suspended(c: &Conn) -> bool {
    side::is_away(&c.words().side[c.my_side()])
}

/// Ends the suspension: the program waits where doorbells are heard.
pub fn resume(c: &Conn) {
    if is_suspended(c) && side::clear_away(&c.words().side[c.my_side()]) {
        let _ = c.reason.compare_exchange(Reason::NeverWaited as u32, 0, Relaxed, Relaxed);
        hint_both(c);
    }
}

/// Makes both writers look at what has changed.
fn hint_both(c: &Conn) {
    c.rx_half().hint_freeze();
    c.tx_half().hint_freeze();
    link::get(c.link.load(Relaxed)).notify_all(c.slot.load(Relaxed) as usize);
}
