//! On the kernel for the time being.

use crate::record::Conn;
use crate::stream::stretch;
use crate::wait::Deadline;
use crate::{drain, link};
use core::sync::atomic::Ordering::*;
use sidestep_abi::Reason;
use sidestep_ring::side;
use sidestep_sys::clock;

/// How long a peer may take to send by kernel what it has put into a ring, until somebody else does.
const SUSPEND_US: u64 = 20_000;

/// Both directions to the kernel until [`resume`], for a program that perhaps waits where no doorbell is heard. What can be
/// read is in the kernel, too, when this returns.
pub fn suspend(c: &'static Conn, fd: i32) {
    side::set_away(&c.words().side[c.my_side()]);
    hint_both(c);
    stretch::serve_all(); // the writer may be this very thread
    let deadline = Deadline::after_ns(Some(SUSPEND_US * 1000));
    let is_open =
        || c.with_rx(|rx| rx.published(c.rx_half()) > rx.pos() && !rx.is_last_of_ring(c.rx_half())).unwrap_or(false);
    while is_open() {
        if deadline.has_passed() {
            return drain::to_kernel(c, fd, Reason::NeverWaited);
        }
        clock::nap_us(200);
    }
}

/// Whether [`suspend`] was called, and nothing since.
pub fn is_suspended(c: &Conn) -> bool {
    side::is_away(&c.words().side[c.my_side()])
}

/// The program waits where doorbells are heard.
pub fn resume(c: &Conn) {
    if is_suspended(c) && side::clear_away(&c.words().side[c.my_side()]) {
        let _ = c.reason.compare_exchange(Reason::NeverWaited as u32, 0, Relaxed, Relaxed);
        hint_both(c);
    }
}

/// Both writers are to look at what has changed.
fn hint_both(c: &Conn) {
    c.rx_half().hint_freeze();
    c.tx_half().hint_freeze();
    link::get(c.link.load(Relaxed)).notify_all(c.slot.load(Relaxed) as usize);
}
