//! What poll(2) and epoll(7) would say of a connection, ring and kernel taken together.

use super::remind;
use crate::io;
use crate::record::{Conn, Reentered, flag};
use core::sync::atomic::Ordering::*;
use sidestep_abi::link::FROZEN;
use sidestep_conn::{Lie, Read, Rx};
use sidestep_sys::fd as fdsys;

/// The bits are the same in poll(2) and epoll(7).
pub const IN: u32 = libc::EPOLLIN as u32;
pub const OUT: u32 = libc::EPOLLOUT as u32;
pub const RDHUP: u32 = libc::EPOLLRDHUP as u32;
pub const PRI: u32 = libc::EPOLLPRI as u32;
pub const ERR: u32 = libc::EPOLLERR as u32;
pub const HUP: u32 = libc::EPOLLHUP as u32;
const IN_ANY: u32 = IN | libc::EPOLLRDNORM as u32;
const OUT_ANY: u32 = OUT | libc::EPOLLWRNORM as u32;
/// What the kernel alone decides.
const LIFE: u32 = RDHUP | PRI | ERR | HUP;

/// The events that hold now, of those in `interest` (ERR and HUP always).
pub fn events(c: &Conn, fd: i32, interest: u32) -> u32 {
    io::send::attend(c, fd);
    if c.has(flag::BROKEN) {
        return (interest & (IN_ANY | OUT_ANY | RDHUP)) | ERR | HUP;
    }
    let rx = if interest & IN_ANY != 0 { readable(c) } else { Answer::No };
    let tx = if interest & OUT_ANY != 0 { writable(c, fd) } else { Answer::No };
    let mut found = 0;
    if rx == Answer::Yes {
        found |= IN_ANY;
    }
    if tx == Answer::Yes {
        found |= OUT_ANY;
    }
    if rx == Answer::AskKernel || tx == Answer::AskKernel || c.has(flag::HINT) {
        found |= ask_kernel(c, fd, tx);
    }
    found & (interest | ERR | HUP)
}

/// What to ask of the kernel besides, for the sake of bytes that are to be taken back: the program may wait for the
/// answer to them.
pub fn for_take_back(c: &Conn) -> i16 {
    if c.has(flag::TX_TAKE_BACK) { OUT as i16 } else { 0 }
}

/// Whether the kernel has said more than "writable", which is no news of a stream's end.
pub fn is_hint(revents: u32) -> bool {
    revents & !OUT_ANY != 0
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Yes,
    No,
    AskKernel,
}

fn ask_kernel(c: &Conn, fd: i32, tx: Answer) -> u32 {
    let wanted = (IN_ANY | OUT_ANY | RDHUP | PRI) as i16;
    let says = u32::from(fdsys::poll_now(fd, wanted) as u16);
    let ended = says & (RDHUP | HUP | ERR) != 0;
    if !ended && says & IN == 0 {
        c.lower(flag::HINT);
    }
    // While the ring carries, the kernel's "readable" can only mean an end, an error, or bytes that somebody sent past the
    // ring: a read finds out which.
    let mut found = says & (LIFE | IN_ANY);
    if tx == Answer::AskKernel || says & (HUP | ERR) != 0 {
        found |= says & OUT_ANY;
    }
    found
}

/// Whether the ring carries and holds bytes for us: a look without locks, for spinning.
#[inline]
pub fn ring_has_bytes(c: &Conn) -> bool {
    let half = c.rx_half();
    // A word that is frozen, or has never been used, differs from every tail.
    let head = half.reader.head.load(Relaxed);
    head & FROZEN == 0 && half.writer.tail.load(Acquire) != head
}

#[inline]
fn readable(c: &Conn) -> Answer {
    let half = c.rx_half();
    let head = half.reader.head.load(Acquire);
    if head & FROZEN == 0 {
        let some = half.writer.tail.load(Acquire) != head;
        let ended = half.writer.fin.load(Acquire) != 0;
        return if some {
            Answer::Yes
        } else if ended {
            Answer::AskKernel
        } else {
            Answer::No
        };
    }
    // The kernel carries, unless a stretch has begun that we have not entered yet.
    match c.with_rx(|rx| next(c, rx)) {
        Ok(Ok(Read::Ring(0))) => Answer::No,
        Ok(Ok(Read::Ring(_)) | Err(_)) => Answer::Yes,
        Ok(Ok(Read::Kernel(_))) => Answer::AskKernel,
        Err(Reentered) => Answer::AskKernel,
    }
}

/// Where the next byte will be; before a wait.
pub fn next(c: &Conn, rx: &mut Rx) -> Result<Read, Lie> {
    let next = rx.next(c.rx_half());
    if rx.on_its_way() > 0 {
        remind::expect();
    }
    next
}

#[inline]
fn writable(c: &Conn, fd: i32) -> Answer {
    if c.has(flag::TX_RING) && !c.has(flag::TX_BLOCKED) {
        return Answer::Yes;
    }
    if !c.has(flag::TX_RING) && !c.has(flag::TX_TAKE_BACK) {
        return Answer::AskKernel;
    }
    match c.with_tx(|end| io::send::offers_space(c, end, fd)) {
        Ok(Some(true)) => Answer::Yes,
        Ok(Some(false)) => Answer::No,
        Ok(None) | Err(Reentered) => Answer::AskKernel,
    }
}
