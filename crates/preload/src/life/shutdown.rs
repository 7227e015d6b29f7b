//! shutdown(2).

use crate::record::{Conn, flag};
use crate::stream::rx;
use crate::{drain, errno};
use sidestep_conn::Rx;

/// Before shutdown(2). The end itself goes by kernel, which wakes whoever waits for it.
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

/// What the kernel brought from now on would be answered with a reset. So no copies may come: a ring that has begun is
/// entered, whatever is unread before it, and no further one begins.
fn enter_last_ring(c: &Conn, rx: &mut Rx, fd: i32) {
    let half = c.rx_half();
    half.withdraw_readiness();
    while rx::discard_copies(c, rx, fd).unwrap_or(false) {}
    let _ = rx.enter_ahead(half);
}
