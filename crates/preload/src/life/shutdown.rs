//! shutdown(2).

use crate::record::{Conn, flag};
use crate::stream::{parked, rx};
use crate::{drain, errno};
use sidestep_conn::Rx;

/// Before shutdown(2). The kernel transmits the end itself, and wakes everybody who waits for it.
pub fn shutting(c: &'static Conn, fd: i32, how: i32) {
    if how != libc::SHUT_RD {
        c.raise(flag::TX_SHUT);
    }
    if how != libc::SHUT_WR {
        c.raise(flag::RX_SHUT | flag::HINT);
    }
    if !c.is_attached() {
        return;
    }
    errno::keep(|| parked::fetch_back(c));
    if how != libc::SHUT_RD {
        errno::keep(|| drain::end_tx(c, fd));
    }
    if c.has(flag::TX_SHUT) && c.has(flag::RX_SHUT) {
        let _ = c.with_rx(|rx| enter_last_ring(c, rx, fd));
    }
    if how != libc::SHUT_RD {
        c.tx_half().set_fin();
    }
}

/// After shutdown both ways the kernel answers arriving bytes with a reset, so no copies may arrive. So the reader enters a
/// ring that has begun, even if kernel bytes before it are unread, and permits no further stretch.
fn enter_last_ring(c: &Conn, rx: &mut Rx, fd: i32) {
    let half = c.rx_half();
    half.withdraw_readiness();
    while rx::discard_copies(c, rx, fd).unwrap_or(false) {}
    let _ = rx.enter_ahead(half);
}
