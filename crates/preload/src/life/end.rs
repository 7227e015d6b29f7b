//! The end of a connection that a ring carries.

use crate::drain;
use crate::record::Conn;
use crate::stream::{leave, rx};
use crate::wait::Deadline;
use sidestep_conn::{Rx, Writer};
use sidestep_sys::{clock, tcp};

/// While an offer is under way the broker holds the socket too, so that our close is not the last, and would not wait as
/// the program has asked for (SO_LINGER). A reset is sent by the broker's close.
pub fn linger(fd: i32) {
    let Some(seconds) = tcp::linger(fd).filter(|seconds| *seconds > 0) else { return };
    let deadline = Deadline::after_ns(Some(u64::from(seconds) * 1_000_000_000));
    while !deadline.has_passed() && tcp::unacknowledged(fd).is_ok_and(|n| n > 0) {
        clock::nap_us(LINGER_LOOK_US);
    }
}

const LINGER_LOOK_US: u64 = 1000;

/// The last number of the last holder is being closed.
pub fn end(c: &'static Conn, fd: i32, is_closed: bool) {
    let has_unread = |end: &mut Writer| end.tx.poll(c.tx_half()).is_ok() && end.tx.unread() > 0;
    if tcp::linger(fd) == Some(0) && c.with_tx(has_unread).unwrap_or(false) {
        tcp::send_at_once(fd); // what the kernel still held back would be lost with the reset
    }
    // Before the FIN goes what the reader has not read: it may turn into somebody without our library.
    drain::end_tx(c, fd);
    c.tx_half().set_fin();
    let _ = c.with_rx(|rx| {
        discard_all_copies(c, rx, fd);
        let in_ring = rx.in_ring();
        let _ = leave::leave_ring(c, rx);
        // close(2) with unread data resets the connection. (What came back to the kernel before is the kernel's to judge.)
        if in_ring && rx.on_its_way() > 0 && is_closed {
            tcp::reset_on_close(fd);
        }
    });
}

/// Copies in the kernel's queue, and those on their way there, are no unread data: the kernel must not answer them with a
/// reset. A writer that sends some is waited for, but not for long.
fn discard_all_copies(c: &Conn, rx: &mut Rx, fd: i32) {
    for _ in 0..COPY_LOOKS {
        let looked = rx::discard_copies(c, rx, fd);
        if looked.is_err() || !rx.awaits_copies(c.rx_half()) {
            return;
        }
        clock::nap_us(COPY_LOOK_US);
    }
}

const COPY_LOOKS: u32 = 40;
const COPY_LOOK_US: u64 = 50;
