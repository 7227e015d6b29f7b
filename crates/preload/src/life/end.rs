//! The end of an attached connection.

use crate::drain;
use crate::record::Conn;
use crate::stream::{leave, parked, rx};
use crate::wait::Deadline;
use sidestep_conn::{Rx, Writer};
use sidestep_sys::{clock, tcp};

/// While an offer is under way the broker holds the socket, too. Our close(2) is then not the last, so it would not wait as
/// SO_LINGER demands. This waits instead. If SO_LINGER demands a reset, the broker's close sends it.
pub fn linger(fd: i32) {
    let Some(seconds) = tcp::linger(fd).filter(|seconds| *seconds > 0) else { return };
    let deadline = Deadline::after_ns(Some(u64::from(seconds) * 1_000_000_000));
    while !deadline.has_passed() && tcp::unacknowledged(fd).is_ok_and(|n| n > 0) {
        clock::nap_us(LINGER_LOOK_US);
    }
}

const LINGER_LOOK_US: u64 = 1000;

/// Ends the connection: the last descriptor of its last holder is being closed.
pub fn end(c: &'static Conn, fd: i32, is_closed: bool) {
    parked::fetch_back(c);
    let has_unread = |end: &mut Writer| end.tx.poll(c.tx_half()).is_ok() && end.tx.unread() > 0;
    if tcp::linger(fd) == Some(0) && c.with_tx(has_unread).unwrap_or(false) {
        tcp::send_at_once(fd); // with SO_LINGER 0 a reset follows, and would discard bytes that the kernel still holds back
    }
    // The unread bytes must be with the kernel before the FIN: the reader may become a program without this library.
    drain::end_tx(c, fd);
    c.tx_half().set_fin();
    let _ = c.with_rx(|rx| {
        discard_all_copies(c, rx, fd);
        let _ = leave::leave_ring(c, rx);
        c.tx_half().set_shut();
        // close(2) with unread data resets the connection. The kernel judges by itself about bytes in its own queue.
        if is_closed && (rx.on_its_way() > 0 || rx.unread(c.rx_half()) > 0) {
            tcp::reset_on_close(fd);
        }
    });
}

/// Discards copies in the kernel's queue, and those that are about to arrive: they are no unread data, and must not cause a
/// reset. Waits for the copies of a writer that is sending some, for a limited time.
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
