//! The end of a stretch that we write, whatever the cause, and the bytes that must then go by kernel.

use super::peer::{self, Word, broken};
use super::{due, iov, parked, unrung};
use crate::fdtable::{self, Kind};
use crate::record::{Conn, flag};
use crate::{arena, counters, errno, settings};
use core::sync::atomic::Ordering::*;
use libc::EAGAIN;
use sidestep_abi::Reason;
use sidestep_conn::{Around, Course, Write, Writer, holder};
use sidestep_ring::{counters as shared, slot, space};
use sidestep_sys::{Errno, Result, push, send_buffer, tcp};

/// Ends our stretch and sends its unread bytes by kernel, as many as it takes now. `reason`: None as part of ending the stream.
pub fn end_stretch(c: &Conn, end: &mut Writer, fd: i32, reason: Option<Reason>) -> Result<()> {
    parked::fetch_back(c);
    let returned = end.end(c.tx_half(), around(c), reason).map_err(|violation| broken(c, fd, violation))?;
    count_return(c, returned);
    send_ended(c, end, fd)
}

/// Sends the unread bytes of an ended stretch by kernel, as many as it takes now.
pub fn send_ended(c: &Conn, end: &mut Writer, fd: i32) -> Result<()> {
    match send_unread(c, end, fd) {
        Err(Errno(EAGAIN)) => Ok(()),
        other => other,
    }
}

/// The rest of the connection's state, as our writing end needs it for decisions.
pub fn around(c: &Conn) -> Around {
    let is_held = slot::is_held(c.words()) || counters::holds();
    Around {
        peer_ended: peer::has_ended(c),
        peer_is_shut: c.rx_half().is_shut(),
        hold: holder(slot::is_away(c.words()), is_held),
    }
}

/// Counts a return to the kernel, if there was one.
pub fn count_return(c: &Conn, reason: Option<Reason>) {
    match reason {
        None => {}
        // Not for good: the first wait that we see may be yet to come.
        Some(Reason::NeverWaited) => c.reason.store(Reason::NeverWaited as u32, Relaxed),
        Some(reason) => {
            c.mark_returned();
            c.blame(reason);
        }
    }
}

/// Sends the unread bytes of an ended stretch by kernel. EAGAIN: the kernel takes no more now.
pub fn send_unread(c: &Conn, end: &mut Writer, fd: i32) -> Result<()> {
    if !end.tx.has_unsent() {
        return Ok(());
    }
    if !parked::fetch_back(c) {
        blocked(c);
        return Err(Errno(EAGAIN));
    }
    let half = c.tx_half();
    end.spare_copies(half, around(c)).map_err(|violation| broken(c, fd, violation))?;
    if !end.tx.has_unsent() {
        return Ok(());
    }
    if !half.claim_sending() {
        return wait_for_deputy(c, end, fd);
    }
    let sent = end.tx.heed_deputy(half).map_err(|violation| broken(c, fd, violation));
    let sent = sent.and_then(|()| send_claimed(c, end, fd));
    half.has_sent();
    shared::set_kernel_tx(&c.words().counters[c.my_side()], end.tx.kernel());
    sent
}

/// The reader is sending these bytes to itself (`deputy.rs`): EAGAIN, unless it has died over that.
#[cold]
fn wait_for_deputy(c: &Conn, end: &mut Writer, fd: i32) -> Result<()> {
    let half = c.tx_half();
    match peer::ask(c, fd) {
        Word::Reset => {}
        // Nobody else changes the words of this direction any more.
        Word::Ended if peer::was_killed(c) => {
            end.tx.heed_deputy(half).and_then(|()| end.tx.poll(half)).map_err(|violation| broken(c, fd, violation))?;
            if end.tx.has_unsent() {
                end.note_death();
            }
        }
        Word::Ended | Word::Nothing => {
            blocked(c);
            return Err(Errno(EAGAIN));
        }
    }
    end.tx.abandon(half);
    Ok(())
}

fn send_claimed(c: &Conn, end: &mut Writer, fd: i32) -> Result<()> {
    let (half, data) = (c.tx_half(), c.tx_data());
    loop {
        let Write::Unread { at, len } = end.tx.next(half, 0).map_err(|violation| broken(c, fd, violation))? else {
            return Ok(());
        };
        match peer::ask(c, fd) {
            Word::Reset => {
                // Nobody takes these bytes, and a send would consume the error that the program must get.
                end.tx.abandon(half);
                return Ok(());
            }
            Word::Ended if peer::was_killed(c) => end.note_death(),
            Word::Ended | Word::Nothing => {}
        }
        let (from, run) = data.run(at);
        // SAFETY: `run` bytes of the ring.
        match unsafe { tcp::send(fd, &iov::one(from.cast_const().cast(), run.min(len))) } {
            Ok(n) => end.tx.sent_unread(half, n),
            Err(e) if e.passes() => {
                space::wish(half.writer); // a reader that empties the ring ends this wait, too
                end.tx.poll(half).map_err(|violation| broken(c, fd, violation))?;
                if end.tx.has_unsent() {
                    blocked(c);
                    return Err(Errno(EAGAIN));
                }
            }
            // The reader is gone. The kernel reports that at the program's next write.
            Err(_) => end.tx.abandon(half),
        }
    }
}

/// Begins a stretch at the present position, if it may begin now. False: the kernel carries on.
pub fn begin(c: &Conn, end: &mut Writer, fd: i32) -> Result<bool> {
    if !may_begin(c, end, fd) {
        return Ok(false);
    }
    end.begin(c.tx_half()).map_err(|violation| broken(c, fd, violation))?;
    c.tx_froze.store(end.tx.froze_seen(), Relaxed);
    push::push(fd); // the kernel gets no further byte that would push this one (MSG_MORE)
    Ok(true)
}

fn may_begin(c: &Conn, end: &mut Writer, fd: i32) -> bool {
    if !c.phase.phase().permits_rings()
        || c.has(flag::TX_SHUT)
        || !may_begin_here(c, end, fd)
        || around(c).hold.is_some()
        || c.owner.load(Relaxed) != arena::me().unwrap_or(u32::MAX)
    {
        return false;
    }
    end.fits(parked::written(c, fd)).map_err(|reason| c.keep_on_kernel(reason)).is_ok()
}

/// The stack has rules of its own for when to carry a connection again.
fn may_begin_here(c: &Conn, end: &mut Writer, fd: i32) -> bool {
    if !c.has(flag::STACK) {
        return end.may_begin(c.tx_half());
    }
    let stacks_side = 1 - c.my_side();
    if let Some(reason) = slot::let_go(c.words(), stacks_side) {
        c.keep_for_now(reason);
    } else if slot::would_let_go(c.words(), stacks_side) {
        parked::ask_to_let_go(c, fd);
    }
    end.tx.may_begin(c.tx_half())
}

/// The kernel takes no more now. The next wait tries again.
pub fn blocked(c: &Conn) {
    let is_first = !c.has(flag::TX_BLOCKED) && c.raise(flag::TX_BLOCKED);
    due::expect_space();
    if is_first {
        unrung::no_space(c);
    }
}

/// Something rang for this connection: does what our direction has to do. Also called by waits that ask the kernel.
#[inline]
pub fn serve(index: u32) {
    let c = arena::conn(index);
    c.mark_waited_for();
    if c.is_attached() && (has_hint(c) || c.course.is(Course::Unsent) || awaits_stack(c)) {
        errno::keep(|| follow(c, arena::local(index).fd.load(Relaxed) as i32));
    }
}

/// As [`serve`], when no doorbell was rung. Every look of every wait calls this, since the peer may have acted before it had our
/// doorbell. If a reader has left because its end was closed, nothing is sent: a send would consume the error that the program
/// must get.
#[inline]
pub fn attend(c: &Conn, fd: i32) {
    if c.course.is(Course::Unsent) || has_hint(c) && !peer::has_ended(c) || awaits_stack(c) {
        errno::keep(|| follow(c, fd));
    }
}

/// Whether the reader or the operator has changed something about our ring since the last look.
#[inline]
fn has_hint(c: &Conn) -> bool {
    c.course.is(Course::Ring) && c.tx_half().hints() != c.tx_froze.load(Relaxed)
}

/// The stack takes a connection once rings carry both directions. So the writer does not wait for its next byte.
#[inline]
fn awaits_stack(c: &Conn) -> bool {
    c.has(flag::STACK) && c.course.is(Course::Kernel) && !c.tx_half().is_unwanted()
}

#[cold]
fn follow(c: &Conn, fd: i32) {
    let _ = c.with_tx(|end| {
        let _ = heed_hints(c, end, fd);
        let _ = send_unread(c, end, fd);
        if awaits_stack(c) {
            let _ = begin(c, end, fd);
        }
    });
}

/// Acts on a hint: the reader has left our ring, or the reader or the operator wants no ring any more.
#[inline]
pub fn heed_hints(c: &Conn, end: &mut Writer, fd: i32) -> Result<()> {
    if end.tx.in_ring() && !end.tx.asked_back(c.tx_half()) {
        return Ok(());
    }
    heed(c, end, fd)
}

#[cold]
fn heed(c: &Conn, end: &mut Writer, fd: i32) -> Result<()> {
    if c.has(flag::STACK) && is_to_go_back(c, end) {
        // A stretch that only ended here would keep the connection on the kernel for good. And until the stack noticed that, nobody
        // would tell the program of space.
        parked::fetch_back(c);
    }
    let returned = end.heed(c.tx_half(), || around(c)).map_err(|violation| broken(c, fd, violation))?;
    c.tx_froze.store(end.tx.froze_seen(), Relaxed);
    if returned.is_none() {
        return Ok(());
    }
    count_return(c, returned);
    send_ended(c, end, fd)
}

/// Whether the stack must give the connection back, and may take it again: the test aid says so, or a hint.
fn is_to_go_back(c: &Conn, end: &Writer) -> bool {
    let every = settings::get().flip;
    every > 0 && end.in_stretch() >= every || end.is_wanted_back(c.tx_half(), around(c))
}

/// Two bounds: (1) of the bytes in the kernel's send queue that are not copies (with the stack: no bound); (2) of the bytes in the
/// stack's ring that the peer has not acknowledged. The stack frees the ring's space only as acknowledgements arrive.
pub fn unacknowledged(c: &Conn, end: &mut Writer) -> (u64, u64) {
    if !c.has(flag::STACK) {
        return (end.tx.news_in_kernel(), 0);
    }
    let half = c.tx_half();
    if half.claim_sending() {
        let _ = end.tx.heed_deputy(half); // the stack has sent bytes in this end's place
        half.has_sent();
    }
    let _ = end.tx.poll(half);
    (u64::MAX, end.tx.unread())
}

/// Moves our direction to the kernel for good, as many bytes as it takes now.
pub fn leave_ring(c: &Conn, fd: i32, reason: Reason) {
    c.keep();
    parked::part(c);
    let _ = c.with_tx(|end| end_stretch(c, end, fd, Some(reason)));
}

/// Ends our direction's use of rings. True: the kernel does not take all unread bytes now, and no reader takes them from the ring.
pub fn end_for_good(c: &Conn, end: &mut Writer, fd: i32, reason: Option<Reason>) -> bool {
    let _ = end_stretch(c, end, fd, reason);
    if end.tx.has_unsent() && parked::fetch_back(c) {
        // A reader that leaves the ring later finds the bytes in the kernel only.
        let _enlarged = send_buffer::Enlarged::to_hold(fd, c.tx_half().size);
        let _ = send_ended(c, end, fd);
    }
    // A stack that carries the connection gives the kernel what is in the ring. Any other has left the ring, or is about to.
    if c.has(flag::STACK) && !parked::is_parked(c) {
        return end.tx.has_unsent();
    }
    if !end.tx.has_unsent() {
        return false;
    }
    // Bytes that the kernel does not take now stay in the ring, unless the reader has left it.
    let left = end.tx.leave_in_ring(c.tx_half()).map_err(|violation| broken(c, fd, violation));
    peer::notify(c); // a reader that was leaving just then reads nothing, and may sleep, until this end has decided
    left.is_ok() && end.tx.has_unsent()
}

/// Does what every connection of this process has to do for its peer.
pub fn serve_all() {
    fdtable::for_each(|_, kind| {
        if let Kind::Conn(index) = kind {
            serve(index);
        }
    });
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::link;
    use crate::stream::unrung::tests::{AT, SLOT, attached, silent_link, with_unread_there};
    use sidestep_conn::Flip;
    use sidestep_sys::{clock, fd as fdsys};
    use std::io::Write as _;
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    pub fn connected() -> (TcpStream, TcpStream) {
        let (near, far) = blocking();
        near.set_nonblocking(true).expect("O_NONBLOCK");
        (near, far)
    }

    /// Both ends of a connection.
    pub fn blocking() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let near = TcpStream::connect(listener.local_addr().expect("its address")).expect("a connection");
        (near, listener.accept().expect("the other end").0)
    }

    /// A connection by this link with 100 bytes in the ring to the stack, which has asked for the stretch, and has not begun to read.
    fn with_bytes_for_the_stack(at: u32) -> &'static Conn {
        let c = attached(at, SLOT);
        c.raise(flag::STACK);
        let begun = c.with_tx(|end| {
            let half = c.tx_half();
            half.set_ready();
            *end = Writer::native(AT, Flip::NEVER);
            assert!(end.tx.may_begin(half));
            assert_eq!(end.begin(half), Ok(true));
            assert_eq!(end.put_ring(half, 100), Ok(()));
        });
        assert!(begun.is_ok());
        c
    }

    /// Until the kernel takes nothing more: several tries, with time for what is on its way, find no space.
    pub fn fill(stream: &mut TcpStream) {
        for piece in [&[7_u8; 65536][..], &[7_u8; 10][..]] {
            let mut in_vain = 0;
            while in_vain < 5 {
                in_vain = if stream.write(piece).is_ok() { 0 } else { in_vain + 1 };
                clock::nap_us(2000);
            }
        }
    }

    #[test]
    fn what_the_kernel_has_no_room_for_is_not_left_to_a_stack_that_leaves() {
        let at = silent_link(0x7e5b);
        let c = with_bytes_for_the_stack(at);
        let (mut near, _far) = connected();
        fill(&mut near);
        let left = c.with_tx(|end| end_for_good(c, end, near.as_raw_fd(), None));
        assert!(matches!(left, Ok(true)), "shutdown(2) would send an end before these bytes");
        assert!(!c.tx_half().is_left_unsent());
        link::remove(at);
    }

    #[test]
    fn a_reader_is_told_that_its_last_bytes_stay_in_the_ring() {
        let at = silent_link(0x7e60);
        let (c, (mut near, _far)) = (attached(at, SLOT), connected());
        fill(&mut near);
        with_unread_there(c, 100);
        let left = c.with_tx(|end| end_for_good(c, end, near.as_raw_fd(), None));
        assert!(matches!(left, Ok(false)) && c.tx_half().is_left_unsent());
        assert_ne!(c.tx_half().news_at(), 0, "nobody would wake a reader that found the writer undecided");
        link::remove(at);
    }

    #[test]
    fn a_remote_peer_that_has_ended_its_own_direction_was_not_killed() {
        let at = silent_link(0x7e5c);
        let c = with_bytes_for_the_stack(at);
        let (near, far) = connected();
        far.shutdown(Shutdown::Write).expect("shutdown");
        let fd = near.as_raw_fd();
        while fdsys::poll_now(fd, libc::POLLRDHUP) == 0 {
            clock::nap_us(1000);
        }
        let seems_killed = c.with_tx(|end| {
            assert_eq!(end_stretch(c, end, fd, None), Ok(()));
            assert!(!end.tx.has_unsent());
            end.has_died_unread(c.tx_half())
        });
        assert!(matches!(seems_killed, Ok(false)), "the program would get ECONNRESET at the end of the stream");
        link::remove(at);
    }
}
