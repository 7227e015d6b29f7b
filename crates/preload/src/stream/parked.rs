//! The third carrier: the stack carries the connection to another host, and the kernel's socket is parked meanwhile. To this
//! end it is a ring. Before a call may use the socket the stack gives the connection back.

use super::peer;
use crate::blocked;
use crate::fdtable::{self, Kind};
use crate::record::{Conn, flag};
use crate::wait::Deadline;
use sidestep_ring::slot::{self, Wish};
use sidestep_sys::{clock, tcp};

/// Longest wait for the stack, which gives a connection back within some ten microseconds. If it has died, nobody does.
pub const BACK_US: u64 = 2_000_000;
/// Between two looks meanwhile.
pub const LOOK_US: u64 = 10;
/// Longest wait for the close of the stack's copy of a socket. Without it, the program's close is followed a moment later by the
/// connection's end.
const COPY_US: u64 = 200_000;

/// How often the socket has been parked or given back. If the number is the same before and after a call, and even, the
/// answer of the call counts.
#[inline]
pub fn changes(c: &Conn) -> u32 {
    // Any other peer could write the word, too.
    if c.has(flag::STACK) { slot::parked(c.words()) } else { 0 }
}

/// Whether the kernel had the connection when there were so many [`changes`], and ever since.
pub fn is_settled(c: &Conn, before: u32) -> bool {
    before.is_multiple_of(2) && changes(c) == before
}

/// Whether the socket is parked: it has nothing to tell, and its answers mean nothing.
#[inline]
pub fn is_parked(c: &Conn) -> bool {
    !changes(c).is_multiple_of(2)
}

/// Has the connection given back to the kernel, if the stack carries it. False: the stack cannot give it back now, since the kernel
/// has no way to the peer.
#[inline]
pub fn fetch_back(c: &Conn) -> bool {
    !is_parked(c) || wait_for_stack(c)
}

/// Makes a call about an option while the kernel has the connection. The stack hears of no change: it would carry the connection as before,
/// and undo the change as it gives the connection back. And a parked socket does not have all options as the program has set them.
pub fn with_the_kernel<T>(c: &Conn, mut call: impl FnMut() -> T) -> T {
    loop {
        let is_back = fetch_back(c);
        let before = changes(c);
        let answer = call();
        if !is_back || is_settled(c, before) {
            return answer;
        }
    }
}

#[cold]
fn wait_for_stack(c: &Conn) -> bool {
    slot::wish(c.words(), Wish::Socket);
    let deadline = Deadline::after_ns(Some(BACK_US * 1000));
    while is_parked(c) && !deadline.has_passed() {
        peer::notify(c);
        clock::nap_us(LOOK_US);
    }
    !is_parked(c)
}

/// The connection is the kernel's for good. The stack closes its copy of the socket: otherwise the last close(2) of the programs that
/// share the connection would not end it.
pub fn part(c: &Conn) {
    if c.has(flag::STACK) && c.is_attached() {
        slot::wish(c.words(), Wish::Slot);
        peer::notify(c);
    }
}

/// Without a slot the kernel's connection is faster. Not while a thread is blocked in a call: until that returns, the slot could not be
/// given back.
#[cold]
pub fn ask_to_let_go(c: &Conn, fd: i32) {
    if matches!(fdtable::get(fd), Kind::Conn(index) if !blocked::has_entry(index)) {
        part(c);
    }
}

/// Before the last close(2): the stack gives the connection back, and closes its copy of the socket, so that this process's close
/// ends the connection.
pub fn dismiss(c: &Conn) {
    if c.has(flag::STACK) {
        dismiss_stack(c);
    }
}

#[cold]
fn dismiss_stack(c: &Conn) {
    slot::wish(c.words(), Wish::Slot);
    fetch_back(c);
    let deadline = Deadline::after_ns(Some(COPY_US * 1000));
    while slot::is_socket_held(c.words()) && !deadline.has_passed() {
        peer::notify(c);
        clock::nap_us(LOOK_US);
    }
}

/// The number of bytes that the program has given to the kernel by the kernel's count, which begins anew when the stack gives a
/// connection back.
pub fn written(c: &Conn, fd: i32) -> Option<u64> {
    let before = if c.has(flag::STACK) { slot::written_before(c.words()) } else { 0 };
    tcp::written(fd).map(|since| since.wrapping_add(before))
}
