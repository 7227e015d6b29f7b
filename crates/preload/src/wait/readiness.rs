//! The events of a connection for poll(2) and epoll(7), from ring and kernel taken together.

use crate::record::{Conn, Reentered, flag};
use crate::stream::{kept, parked, rx, tx};
use sidestep_conn::{Course, Phase, Read, Rx};
use sidestep_sys::fd as fdsys;

/// The bits are the same in poll(2) and epoll(7).
pub const IN: u32 = libc::EPOLLIN as u32;
pub const OUT: u32 = libc::EPOLLOUT as u32;
pub const RDHUP: u32 = libc::EPOLLRDHUP as u32;
pub const PRI: u32 = libc::EPOLLPRI as u32;
pub const ERR: u32 = libc::EPOLLERR as u32;
pub const HUP: u32 = libc::EPOLLHUP as u32;
pub const IN_ANY: u32 = IN | libc::EPOLLRDNORM as u32;
pub const OUT_ANY: u32 = OUT | libc::EPOLLWRNORM as u32;
/// Arriving bytes wake a registration for any of these (`sock_def_readable` in the kernel).
pub const ARRIVALS: u32 = IN_ANY | PRI | libc::EPOLLRDBAND as u32;
/// Events that hold for good once they hold.
pub const ENDS: u32 = RDHUP | ERR | HUP;
/// Events that the kernel alone decides.
const LIFE: u32 = ENDS | PRI;

/// The events of `interest` that hold now; ERR and HUP always.
pub fn events(c: &Conn, fd: i32, interest: u32) -> u32 {
    kept::attend(c, fd);
    if c.phase.is(Phase::Broken) {
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
    let ended = c.rx_half().has_fin();
    if rx == Answer::AskKernel || tx == Answer::AskKernel || ended || c.has(flag::HINT) {
        found |= ask_kernel(c, fd, tx);
    }
    found & (interest | ERR | HUP)
}

/// Events to ask of the kernel besides, because unread bytes are still to be sent by it: the program may wait for the answer to
/// these bytes.
pub fn for_unsent(c: &Conn) -> i16 {
    if c.course.is(Course::Unsent) && is_kernels(c) { OUT as i16 } else { 0 }
}

/// Whether the kernel knows when our direction can go on. It does not while a ring carries. Nor does it while the peer says
/// that it sends the unread bytes itself: that takes no time, or the peer lies.
pub fn is_kernels(c: &Conn) -> bool {
    match c.course.get() {
        Course::Kernel => true,
        Course::Ring => false,
        Course::Unsent => !c.tx_half().is_being_sent(),
    }
}

/// Whether the kernel has reported more than "writable", which is no sign of a stream's end.
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
    if parked::is_parked(c) {
        c.lower(flag::HINT);
        return 0;
    }
    let before = parked::changes(c);
    let says = poll_for_news(c, fd);
    if parked::changes(c) != before {
        return 0;
    }
    let ended = says & (RDHUP | HUP | ERR) != 0;
    if !ended && says & IN == 0 {
        c.lower(flag::HINT);
    }
    // While the ring carries, "readable" of the kernel means an end, an error, or bytes that somebody sent past the ring. A
    // read finds out which.
    let mut found = says & (LIFE | IN_ANY);
    if tx == Answer::AskKernel || says & (HUP | ERR) != 0 {
        found |= says & OUT_ANY;
    }
    found
}

/// The kernel's events, without those of copies, which are no news. Copies may arrive just before the kernel is asked, so it is
/// asked again after they have been discarded.
fn poll_for_news(c: &Conn, fd: i32) -> u32 {
    let discard = || c.with_rx(|rx| rx::discard_copies(c, rx, fd).unwrap_or(false)).unwrap_or(false);
    let wanted = (IN_ANY | OUT_ANY | RDHUP | PRI) as i16;
    discard();
    let mut says = 0;
    for _ in 0..COPY_LOOKS {
        says = u32::from(fdsys::poll_now(fd, wanted) as u16);
        if says & IN == 0 || !discard() {
            break;
        }
    }
    says
}

/// Most repetitions, so that a peer which sends copies all the time cannot keep a thread here.
const COPY_LOOKS: u32 = 64;

/// Whether the ring carries and has bytes for us, without locks, for spinning.
#[inline]
pub fn ring_has_bytes(c: &Conn) -> bool {
    c.rx_half().has_bytes()
}

#[inline]
fn readable(c: &Conn) -> Answer {
    if ring_has_bytes(c) {
        return Answer::Yes;
    }
    let half = c.rx_half();
    if half.is_open() {
        return Answer::No;
    }
    // The kernel carries, unless a stretch has begun that we have not entered yet.
    match c.with_rx(|rx| rx.next(half)) {
        Ok(Ok(Read::Ring(0))) if !half.has_fin() => Answer::No,
        Ok(Ok(Read::Ring(0) | Read::Kernel(_) | Read::Copies)) => Answer::AskKernel,
        Ok(Ok(Read::Ring(_)) | Err(_)) => Answer::Yes,
        Err(Reentered) => Answer::AskKernel,
    }
}

/// Whether bytes can be read now, as far as the ring and copies tell.
pub fn has_bytes(c: &Conn, rx: &mut Rx) -> bool {
    !matches!(rx.next(c.rx_half()), Ok(Read::Ring(0) | Read::Kernel(_) | Read::Copies))
}

#[inline]
fn writable(c: &Conn, fd: i32) -> Answer {
    match c.course.get() {
        Course::Kernel => return Answer::AskKernel,
        Course::Ring if !c.has(flag::TX_BLOCKED) && ring_has_space(c) => return Answer::Yes,
        Course::Ring | Course::Unsent => {}
    }
    match c.with_tx(|end| tx::offers_space(c, end, fd)) {
        Ok(Some(true)) => Answer::Yes,
        Ok(Some(false)) => Answer::No,
        Ok(None) | Err(Reentered) => Answer::AskKernel,
    }
}

/// Whether the next byte fits into the ring, according to the shared words.
fn ring_has_space(c: &Conn) -> bool {
    c.tx_half().has_space()
}
