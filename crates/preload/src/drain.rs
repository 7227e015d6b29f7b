//! Back to the kernel for good, in one direction or both, with every byte.

use crate::link;
use crate::record::Conn;
use crate::stream::stretch::{self, end_for_good};
use crate::stream::{deputy, leave, rx};
use crate::wait::Deadline;
use crate::wait::pause::{Number, Pause, Want};
use core::sync::atomic::Ordering::*;
use sidestep_abi::Reason;
use sidestep_conn::{Event, Rx};
use sidestep_ring::counters as shared;
use sidestep_sys::{clock, fd as fdsys, tcp};

/// Our direction to the kernel for good: what is sent next is sent there. Without a reason: as a part of ending it.
pub fn tx(c: &'static Conn, fd: i32, reason: Option<Reason>) {
    c.phase.go(Event::Keep);
    if !c.is_attached() {
        reason.inspect(|r| c.blame(*r));
        return;
    }
    let mut wait = Pause::new(LAST_WAIT_US);
    let deadline = Deadline::after_ns(Some(LAST_WAIT_US * 1000)); // whatever there is to look at again and again
    loop {
        let pending = c.with_tx(|end| end_for_good(c, end, fd, reason));
        if !matches!(pending, Ok(true)) || deadline.has_passed() || wait.pause(c, Number::of(fd), Want::Out).is_err() {
            return;
        }
    }
}

/// How long at most a call that must not go on waits for the kernel to take bytes that nobody else can deliver.
const LAST_WAIT_US: u64 = 2_000_000;

/// Both directions to the kernel for good, for somebody who reads natively from here on.
pub fn both(c: &'static Conn, fd: i32, reason: Reason) {
    leave::rx_to_kernel(c, reason);
    tx(c, fd, Some(reason));
}

/// Both directions to the kernel for good, while all reading goes on through us.
pub fn both_once_read(c: &'static Conn, fd: i32, reason: Reason) {
    leave::rx_to_kernel_once_read(c, reason);
    tx(c, fd, Some(reason));
}

/// Longest wait for a peer to send by kernel what we had not read, before the socket goes to somebody who
/// cannot read rings.
const HAND_OVER_US: u64 = 2_000_000;

/// As [`both`], and waits until the kernel has what was unread here, and nothing twice.
pub fn to_kernel(c: &'static Conn, fd: i32, reason: Reason) {
    if !c.is_attached() {
        return c.keep_on_kernel(reason);
    }
    both(c, fd, reason);
    let expected = c.with_rx(|rx| rx.drain_target().max(rx.published(c.rx_half()))).unwrap_or(0);
    let deadline = Deadline::after_ns(Some(HAND_OVER_US * 1000));
    let handed_over = || {
        let look = |rx: &mut Rx| {
            let is_done = is_handed_over(c, rx, fd, expected);
            if is_done {
                rx.hand_over();
            }
            is_done
        };
        c.with_rx(look).unwrap_or(true)
    };
    if handed_over() {
        return;
    }
    stretch::serve_all(); // the writer may be this very thread
    let mut looks = 0;
    while !handed_over() && !deadline.has_passed() {
        link::get(c.link.load(Relaxed)).notify_all(c.slot.load(Relaxed) as usize);
        looks += 1;
        if looks % DEPUTY_LOOKS == 0 {
            let _ = c.with_rx(|rx| deputy::send_for_writer(c, rx, fd));
        }
        clock::nap_us(200);
    }
}

/// After so many looks, a millisecond, doorbells have had their time.
const DEPUTY_LOOKS: u32 = 5;

/// Whether the kernel has all bytes up to `expected` that were not read here, and no copies of what was.
fn is_handed_over(c: &Conn, rx: &mut Rx, fd: i32, expected: u64) -> bool {
    while rx::discard_copies(c, rx, fd).unwrap_or(false) {}
    if fdsys::poll_now(fd, libc::POLLRDHUP) & (libc::POLLHUP | libc::POLLERR) != 0 {
        return true;
    }
    let queued = tcp::queued(fd).map_or(u64::MAX, u64::from);
    rx.is_in_kernel(expected, queued, shared::load(&c.words().counters[1 - c.my_side()]).kernel_tx)
}
