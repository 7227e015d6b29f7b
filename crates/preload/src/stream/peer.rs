//! The process at the other end: ringing its doorbells, and ending a connection on which it violates the protocol.

use crate::link;
use crate::record::Conn;
use core::sync::atomic::Ordering::*;
use sidestep_abi::Reason;
use sidestep_conn::{Event, PeerViolation};
use sidestep_ring::side;
use sidestep_sys::{Errno, tcp};

/// Rings the peer's doorbells for this connection.
#[inline]
pub fn notify(c: &Conn) {
    let bells = side::doorbells(&c.words().side[1 - c.my_side()]);
    link::get(c.link.load(Relaxed)).notify(c.slot.load(Relaxed) as usize, bells);
}

/// Whether the peer has closed its end, or half of it. The end of its stretch is then no return to the kernel.
pub fn has_ended(c: &Conn) -> bool {
    c.rx_half().has_fin()
}

/// The peer has violated the protocol: ends the connection, and returns the error of the program's calls (EPROTO).
#[cold]
pub fn broken(c: &Conn, fd: i32, _which: PeerViolation) -> Errno {
    if c.phase.go(Event::Break).is_some() {
        c.blame(Reason::BrokenPeer);
        tcp::shutdown(fd, libc::SHUT_RDWR);
    }
    Errno(libc::EPROTO)
}
