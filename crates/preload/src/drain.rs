//! Moves one or both directions to the kernel for good, with every byte.

use crate::link;
use crate::record::{self, Conn, flag};
use crate::stream::stretch::{self, end_for_good};
use crate::stream::{deputy, kept, leave, parked, rx};
use crate::wait::Deadline;
use crate::wait::pause::{Number, Pause, Want};
use core::sync::atomic::Ordering::*;
use sidestep_abi::Reason;
use sidestep_conn::Rx;
use sidestep_ring::counters as shared;
use sidestep_sys::{Errno, Result, clock, fd as fdsys, tcp};

/// Moves our direction to the kernel for good. Waits for a limited time. Unsent bytes that remain then go by kernel later,
/// before any newer byte.
pub fn tx(c: &'static Conn, fd: i32, reason: Reason) {
    let _ = send_last(c, fd, Some(reason), Limit::Ours);
}

/// Moves our direction to the kernel for good before a call that sends natively, which must not overtake unread bytes of the
/// ring. EAGAIN, EINTR: the kernel's buffers are full. The native call would return the same.
pub fn before_native_send(c: &'static Conn, fd: i32, reason: Reason, flags: i32) -> Result<()> {
    let timeout_us = c.tx_timeout_us.load(Relaxed);
    if c.may_wait(flags) && timeout_us != record::NO_WAIT {
        return send_last(c, fd, Some(reason), Limit::Program(timeout_us));
    }
    match send_what_goes(c, fd, Some(reason)) {
        Sent::Everything => Ok(()),
        Sent::InPart => Err(Errno(libc::EAGAIN)),
    }
}

/// Moves our direction to the kernel for good as part of ending it. If the kernel does not take all bytes in time, nobody can
/// deliver the rest. Then the connection is reset, so that the stream does not seem complete.
pub fn end_tx(c: &'static Conn, fd: i32) {
    if send_last(c, fd, None, Limit::Ours).is_err() {
        break_off(c, fd);
    }
}

/// Longest wait for the kernel to take bytes that nobody else can deliver, in calls that must not block.
const LAST_WAIT_US: u64 = 2_000_000;

/// How long a wait for the kernel to take bytes may last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Limit {
    /// [`LAST_WAIT_US`]. Handlers do not end such a wait, and it is no cancellation point.
    Ours,
    /// That of the program, in microseconds; 0: none. The wait is the program's own, which a handler or a cancellation ends.
    Program(u64),
}

#[derive(PartialEq, Eq)]
enum Sent {
    Everything,
    /// The reader has left the ring, and the kernel's buffers are full.
    InPart,
}

fn send_what_goes(c: &Conn, fd: i32, reason: Option<Reason>) -> Sent {
    c.keep();
    parked::part(c);
    if !c.is_attached() {
        reason.inspect(|r| c.blame(*r));
        return Sent::Everything;
    }
    kept::send_any(c, fd);
    match c.with_tx(|end| end_for_good(c, end, fd, reason)) {
        Ok(true) => Sent::InPart,
        _ => Sent::Everything,
    }
}

/// `reason`: None as part of ending our direction. EAGAIN: the limit has passed. EINTR: a handler ran, and the limit is the program's.
fn send_last(c: &Conn, fd: i32, reason: Option<Reason>, limit: Limit) -> Result<()> {
    let (begin, limit_us): (fn(u64) -> Pause, u64) = match limit {
        Limit::Ours => (Pause::steady, LAST_WAIT_US),
        Limit::Program(us) => (Pause::new, us),
    };
    let mut wait = begin(limit_us);
    // `wait` alone would go on for as long as something is ready, or handlers run.
    let deadline = Deadline::after_ns((limit_us > 0).then_some(limit_us.saturating_mul(1000)));
    while send_what_goes(c, fd, reason) == Sent::InPart {
        if deadline.has_passed() {
            return Err(Errno(libc::EAGAIN)); // after a last try: this process may have been stopped meanwhile
        }
        match wait.pause(c, Number::of(fd), Want::Out) {
            Err(Errno(libc::EINTR)) if limit == Limit::Ours => wait = begin(limit_us),
            other => other?,
        }
    }
    Ok(())
}

/// Bytes of the stream are lost: resets the connection, so that both ends see an error.
#[cold]
fn break_off(c: &Conn, fd: i32) {
    c.lower(flag::REASONED); // this reason outweighs the one that is recorded
    c.blame(Reason::Undelivered);
    tcp::abort(fd);
}

/// Moves both directions to the kernel for good, for a reader that reads natively from now on.
pub fn both(c: &'static Conn, fd: i32, reason: Reason) {
    // In this order: the stack gives the kernel those unread bytes whose reader has left the ring.
    leave::rx_to_kernel(c, reason);
    parked::part(c);
    parked::fetch_back(c);
    tx(c, fd, reason);
}

/// Moves both directions to the kernel for good, while this library still does all reading.
pub fn both_once_read(c: &'static Conn, fd: i32, reason: Reason) {
    parked::fetch_back(c);
    leave::rx_to_kernel_once_read(c, reason);
    tx(c, fd, reason);
}

/// Longest wait for a peer to send unread bytes by kernel, before the socket goes to a reader without rings.
const HAND_OVER_US: u64 = 2_000_000;

/// The connections that one call of the program moves to the kernel. Their peers have a limited time together, as one stopped process
/// may be the peer of many.
pub struct Batch(Deadline);

impl Batch {
    /// The time begins with the first wait.
    pub fn begin() -> Batch {
        Batch(Deadline::after_ns(Some(HAND_OVER_US * 1000)))
    }

    /// As [`Batch::to_kernel`], for a program that takes over from this one. If some bytes could not be delivered, or would be
    /// delivered twice, the connection is reset.
    pub fn hand_over(&self, c: &'static Conn, fd: i32, reason: Reason) {
        self.to_kernel(c, fd, reason);
        reset_undelivered(c, fd);
    }

    /// As [`both`], and waits until the kernel has every byte that was unread here, and no byte twice.
    pub fn to_kernel(&self, c: &'static Conn, fd: i32, reason: Reason) {
        if !c.is_attached() {
            return c.keep_on_kernel(reason);
        }
        both(c, fd, reason);
        let expected = c.with_rx(|rx| rx.drain_target().max(rx.published(c.rx_half()))).unwrap_or(0);
        let is_over = || c.with_rx(|rx| look_for_rest(c, rx, fd, expected)).unwrap_or(true);
        if is_over() {
            return;
        }
        stretch::serve_all(); // the other end may be in this process, and its writer this very thread
        let mut looks = 0;
        // However long other peers have taken, this one has time to answer, and the library to send in its place.
        while !is_over() && (looks <= DEPUTY_LOOKS || !self.0.has_passed()) {
            link::get(c.link.load(Relaxed)).notify_all(c.slot.load(Relaxed) as usize);
            looks += 1;
            if looks % DEPUTY_LOOKS == 0 {
                let _ = c.with_rx(|rx| deputy::send_for_writer(c, rx, fd));
            }
            clock::nap_us(200);
        }
    }
}

/// As [`Batch::to_kernel`], of one connection.
pub fn to_kernel(c: &'static Conn, fd: i32, reason: Reason) {
    Batch::begin().to_kernel(c, fd, reason);
}

/// After [`to_kernel`], if this library does nothing for the connection any more.
pub fn reset_undelivered(c: &Conn, fd: i32) {
    let has_unsent = || c.with_tx(|end| end.tx.has_unsent()).unwrap_or(false);
    if c.is_attached() && (has_unsent() || is_cut_off(c, fd)) {
        break_off(c, fd);
    }
}

/// As [`to_kernel`], before the kernel moves bytes of the connection past this library. If the kernel lacks some of them, the
/// connection is reset.
pub fn before_native_receive(c: &'static Conn, fd: i32, reason: Reason) {
    to_kernel(c, fd, reason);
    if c.is_attached() && is_cut_off(c, fd) {
        break_off(c, fd);
    }
}

fn is_cut_off(c: &Conn, fd: i32) -> bool {
    let last = has_all(fd).then(|| queued(fd));
    c.with_rx(|rx| rx.is_cut_off(c.rx_half(), last)).unwrap_or(false)
}

/// After this many looks (one millisecond) the peer has had time to answer its doorbells.
const DEPUTY_LOOKS: u32 = 5;

/// Looks whether the kernel has all bytes up to `expected` that were not read here, and no copies of bytes that were. True: it
/// has, or the stream has ended without them, so that only this library can read what is left in the ring.
fn look_for_rest(c: &Conn, rx: &mut Rx, fd: i32, expected: u64) -> bool {
    let has_all = has_all(fd); // before copies are discarded, and the queue's length is asked
    while rx::discard_copies(c, rx, fd).unwrap_or(false) {}
    if !rx.expects_copies() {
        let _ = rx.refuse(c.rx_half()); // a stretch that had begun behind those copies
    }
    let expected = expected.max(rx.drain_target()).max(rx.published(c.rx_half()));
    let counted = shared::load(&c.words().counters[1 - c.my_side()]).kernel_tx;
    let sent = if has_all { 0 } else { rx.sent_by_kernel(c.rx_half(), counted) };
    if rx.is_in_kernel(expected, queued(fd), sent) {
        rx.hand_over();
        return true;
    }
    has_all || rx.is_kept_in_ring(c.rx_half())
}

/// Whether the kernel gets nothing more from the peer: the stream has ended, or was reset.
fn has_all(fd: i32) -> bool {
    let gone = libc::POLLHUP | libc::POLLERR;
    fdsys::poll_now(fd, libc::POLLRDHUP) & gone != 0 || tcp::has_ended(fd)
}

fn queued(fd: i32) -> u64 {
    tcp::queued(fd).map_or(u64::MAX, u64::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::stretch::tests::connected;
    use crate::stream::unrung::tests::{attached, silent_link, with_unread};
    use std::os::fd::AsRawFd;
    use std::time::{Duration, Instant};

    /// The library cannot send in place of this peer, which does nothing.
    #[test]
    fn one_wait_is_for_all_connections_of_a_stopped_peer() {
        let (at, batch, began) = (silent_link(0x7e59), Batch::begin(), Instant::now());
        for slot in 0..3 {
            let (mine, _theirs) = connected();
            let c = attached(at, slot);
            with_unread(c, 100);
            batch.to_kernel(c, mine.as_raw_fd(), Reason::Exec);
            assert_eq!(c.with_rx(|rx| rx.on_its_way()).ok(), Some(100), "the peer is to send them");
        }
        let took = began.elapsed();
        assert!((Duration::from_secs(2)..Duration::from_secs(4)).contains(&took), "{took:?}");
        link::remove(at);
    }
}
