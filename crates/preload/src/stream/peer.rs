//! The process at the other end: ringing its doorbells, and ending a connection on which it violates the protocol.

use crate::link;
use crate::record::{Conn, flag};
use core::sync::atomic::Ordering::*;
use sidestep_abi::Reason;
use sidestep_conn::{Event, PeerViolation};
use sidestep_ring::side;
use sidestep_sys::{Errno, fd as fdsys, tcp};

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

/// Whether the end of the peer's stream, which the kernel reports, is that of a process that was killed. Any other process says before
/// that it ends. The stack says nothing: its remote peer may have ended one direction only, and the kernel reports a reset by itself.
pub fn was_killed(c: &Conn) -> bool {
    !has_ended(c) && !c.has(flag::STACK)
}

/// What the kernel says of the peer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Word {
    Nothing,
    /// Its stream has ended.
    Ended,
    /// The connection is reset.
    Reset,
}

/// Asks the kernel about the peer of a direction that this end has not shut. After shutdown(SHUT_RD) here the kernel says
/// POLLRDHUP, whatever the peer does.
pub fn ask(c: &Conn, fd: i32) -> Word {
    let says = fdsys::poll_now(fd, libc::POLLRDHUP);
    match says {
        _ if says & (libc::POLLERR | libc::POLLHUP) != 0 => Word::Reset,
        _ if says & libc::POLLRDHUP == 0 => Word::Nothing,
        _ if c.has(flag::RX_SHUT) && !tcp::has_ended(fd) => Word::Nothing,
        _ => Word::Ended,
    }
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
