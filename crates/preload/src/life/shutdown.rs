//! shutdown(2).

use crate::record::{Conn, flag};
use crate::stream::native::natively;
use crate::stream::{parked, rx, stretch};
use crate::{arena, drain, errno};
use core::ffi::c_int;
use core::sync::atomic::{Ordering::SeqCst, fence};
use sidestep_abi::Reason;
use sidestep_conn::Rx;
use sidestep_sys::tcp;

/// shutdown(2) of a connection. `native`: the program's own call. The kernel transmits the end itself, and wakes everybody who waits
/// for it.
pub fn shut(index: u32, fd: i32, how: i32, native: impl Fn() -> c_int) -> c_int {
    let c = arena::conn(index);
    if how != libc::SHUT_RD {
        c.raise(flag::TX_SHUT);
    }
    if how != libc::SHUT_WR {
        c.raise(flag::RX_SHUT | flag::HINT);
    }
    // Inside the gate: if another thread attached the connection now, the peer's library would not be told of the end, and would take
    // this end for killed.
    let by_kernel = || {
        let result = native();
        if result == 0 && tcp::is_unconnected(fd) {
            // It was not connected yet, and nothing of the next connection is shut.
            c.lower(flag::TX_SHUT | flag::RX_SHUT);
        }
        result
    };
    natively(index, c, by_kernel).unwrap_or_else(|| {
        let was_back = shutting(c, fd, how);
        if is_left_to_stack(c, was_back) { 0 } else { native() }
    })
}

/// Whether the stack shuts the socket once it has given the connection back. While the kernel has no way to the peer it cannot do so in
/// time: a call on the parked socket would fail, or the give-back would undo it. A stack that was about to take the connection marks the
/// socket for a moment, finds the stream's end, and does not take it: that is waited for. `was_back`: the socket was the kernel's before.
fn is_left_to_stack(c: &Conn, was_back: bool) -> bool {
    c.has(flag::TX_SHUT) && parked::is_parked(c) && !(was_back && errno::keep(|| parked::fetch_back(c)))
}

/// Before shutdown(2) of an attached connection. False: the stack could not give its socket back.
fn shutting(c: &'static Conn, fd: i32, how: i32) -> bool {
    if how == libc::SHUT_RD && c.has(flag::STACK) {
        // The kernel keeps no shut reading side for a connection that is taken from it.
        errno::keep(|| stretch::leave_ring(c, fd, Reason::SocketNeeded));
    }
    let is_back = errno::keep(|| parked::fetch_back(c));
    if how != libc::SHUT_RD {
        errno::keep(|| drain::end_tx(c, fd));
        if !c.has(flag::RX_SHUT) {
            c.tx_half().set_fin();
            fence(SeqCst);
        }
    }
    // Another thread may be shutting the other direction. It raises its flag, or sets `fin`, before it looks here: one of the two sees
    // both.
    if c.has(flag::TX_SHUT) && c.has(flag::RX_SHUT) {
        let _ = c.with_rx(|rx| enter_last_ring(c, rx, fd));
        fence(SeqCst);
        if how != libc::SHUT_RD || c.tx_half().has_fin() {
            c.tx_half().set_shut();
        }
    }
    is_back
}

/// After shutdown both ways the kernel answers arriving bytes with a reset, so no copies may arrive. So the reader enters a
/// ring that has begun, even if kernel bytes before it are unread, and permits no further stretch.
fn enter_last_ring(c: &Conn, rx: &mut Rx, fd: i32) {
    let half = c.rx_half();
    half.withdraw_readiness();
    while rx::discard_copies(c, rx, fd).unwrap_or(false) {}
    let _ = rx.enter_ahead(half);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link;
    use crate::stream::stretch::tests::blocking;
    use crate::stream::unrung::tests::{SLOT, attached, silent_link};
    use sidestep_conn::Writer;
    use sidestep_ring::slot::{self, Wish};
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    #[test]
    fn nobody_attaches_a_connection_that_is_being_shut() {
        let index = arena::alloc().expect("a record");
        let c = arena::conn(index);
        c.reset(0, arena::bit());
        let native = || {
            assert!(c.has(flag::TX_SHUT) && !c.has(flag::RX_SHUT));
            assert!(!c.gate.is_empty(), "another thread could attach the connection");
            7
        };
        assert_eq!(shut(index, -1, libc::SHUT_WR, native), 7);
        assert!(c.gate.is_empty());
        arena::let_go(index);
    }

    #[test]
    fn the_connection_after_one_that_was_never_established_is_not_shut() {
        let (socket, _other) = blocking();
        tcp::abort(socket.as_raw_fd());
        let index = arena::alloc().expect("a record");
        let c = arena::conn(index);
        c.reset(0, arena::bit());
        // shutdown(2) of a socket that connects succeeds, and leaves the socket unconnected.
        assert_eq!(shut(index, socket.as_raw_fd(), libc::SHUT_RDWR, || 0), 0);
        assert!(!c.has(flag::TX_SHUT) && !c.has(flag::RX_SHUT));
        arena::let_go(index);
    }

    #[test]
    fn a_socket_that_stays_parked_is_left_to_the_stack() {
        let at = silent_link(0x7e5e);
        let c = attached(at, SLOT);
        c.raise(flag::STACK | flag::TX_SHUT);
        slot::set_parked(c.words(), 1);
        shutting(c, -1, libc::SHUT_WR);
        assert!(c.tx_half().has_fin() && is_left_to_stack(c, false));
        let waits = std::time::Instant::now();
        assert!(
            is_left_to_stack(c, true) && waits.elapsed() > Duration::from_secs(1),
            "it may be a mark that goes at once"
        );
        slot::set_parked(c.words(), 2);
        assert!(!is_left_to_stack(c, true), "the program's own call");
        link::remove(at);
    }

    #[test]
    fn the_stack_leaves_a_connection_whose_reading_side_is_shut() {
        let at = silent_link(0x7e5a);
        let c = attached(at, SLOT);
        assert!(c.with_tx(|end| *end = Writer::default()).is_ok());
        c.raise(flag::STACK);
        shutting(c, -1, libc::SHUT_RD);
        assert_eq!(slot::wished(c.words()), Wish::Slot);
        assert!(!c.phase.phase().permits_rings());
        link::remove(at);
    }
}
