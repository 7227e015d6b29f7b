//! The end of an attached connection.

use crate::drain;
use crate::lineage;
use crate::record::Conn;
use crate::stream::peer::{self, Word};
use crate::stream::{leave, parked, rx};
use crate::wait::Deadline;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use sidestep_conn::{Rx, Writer};
use sidestep_sys::{arch, clock, push, tcp};

/// While an offer is under way the broker holds the socket, too, or the stack that it asks. Our close(2) is then not the last, and the
/// peer would learn of it late. So this ends the connection as the last close would: unread data resets it. True: it is reset.
pub fn hang_up(c: &Conn, fd: i32) -> bool {
    // A thread inside a call holds the socket, too, and close(2) does not disturb it. A child on our memory has its own descriptors.
    if !is_fresh(c) || !c.gate.is_empty() || lineage::is_borrowed() {
        return false;
    }
    let is_reset = match (tcp::linger(fd), tcp::queued(fd)) {
        (Some(0), _) | (_, Ok(1..)) => true,
        (_, Ok(0)) => false,
        (_, Err(_)) => return false,
    };
    if is_reset {
        tcp::abort(fd)
    } else {
        tcp::shutdown(fd, libc::SHUT_RDWR)
    }
    is_reset
}

/// Longer than others usually have the socket of an offer. Later nothing is done that could disturb a holder whom the library does not see.
const FRESH_US: u64 = 20_000;

/// Whether others may still have the socket of the offer.
pub fn is_fresh(c: &Conn) -> bool {
    arch::ticks().saturating_sub(c.offered_at.load(Relaxed)) < clock::ticks_of_us(FRESH_US)
}

/// While others have the socket, close(2) would not wait as SO_LINGER demands. This waits instead.
pub fn linger(c: &Conn, fd: i32) {
    let asked = is_fresh(c).then(|| tcp::linger(fd)).flatten();
    let Some(seconds) = asked.filter(|seconds| *seconds > 0) else { return };
    let deadline = Deadline::after_ns(Some(u64::from(seconds) * 1_000_000_000));
    while !deadline.has_passed() && tcp::unacknowledged(fd).is_ok_and(|n| n > 0) {
        if !clock::nap_us(LINGER_LOOK_US) {
            break; // a signal ends the wait of close(2), too
        }
    }
    tcp::set_linger(fd, None); // the others may have closed their copies: close(2) would wait once more
}

const LINGER_LOOK_US: u64 = 1000;

/// Ends the connection: the last descriptor of its last holder is being closed.
pub fn end(c: &'static Conn, fd: i32, is_closed: bool) {
    parked::fetch_back(c);
    let has_unread = |end: &mut Writer| end.tx.poll(c.tx_half()).is_ok() && end.tx.unread() > 0;
    if tcp::linger(fd) == Some(0) && c.with_tx(has_unread).unwrap_or(false) {
        push::send_at_once(fd); // with SO_LINGER 0 a reset follows, and would discard bytes that the kernel still holds back
    }
    // The unread bytes must be with the kernel before the FIN: the reader may become a program without this library.
    drain::end_tx(c, fd);
    c.tx_half().set_fin();
    let _ = c.with_rx(|rx| {
        // Before the copies are discarded: a writer that begins to send some later sees that nobody takes them.
        let _ = leave::leave_ring(c, rx);
        discard_all_copies(c, rx, fd);
        c.tx_half().set_shut();
        // close(2) with unread data resets the connection. The kernel judges by itself about bytes in its own queue.
        let is_reset = rx.on_its_way() > 0 || rx.unread(c.rx_half()) > 0;
        if is_closed && (is_reset || tcp::queued(fd).is_ok_and(|n| n > 0)) {
            push::push_past_nagle(fd); // a ring takes no acknowledgement along, and a reset discards what waits for one
        }
        if is_closed && is_reset {
            tcp::reset_on_close(fd);
        }
    });
}

/// Discards copies in the kernel's queue, and those that are about to arrive: they are no unread data, and must not cause a
/// reset. Waits for those of a writer that is sending some, and for those on their way in the kernel, for a limited time.
fn discard_all_copies(c: &Conn, rx: &mut Rx, fd: i32) {
    let may_wait = clock::monotonic_ns() >= NO_WAIT_BEFORE.load(Relaxed);
    let deadline = Deadline::after_ns(Some(if may_wait { COPIES_US } else { COPIES_BRIEF_US } * 1000));
    while !has_discarded_all(c, rx, fd) {
        if deadline.has_passed() {
            NO_WAIT_BEFORE.store(clock::monotonic_ns() + PAUSE * COPIES_US * 1000, Relaxed);
            return;
        }
        clock::nap_us(COPY_LOOK_US);
    }
}

/// Until this time (nanoseconds) a close waits briefly: another one has waited in vain, perhaps for the same peer, which may have many
/// connections and be stopped, or hostile.
static NO_WAIT_BEFORE: AtomicU64 = AtomicU64::new(0);
/// How many times as long as a wait in vain the next ones are brief.
const PAUSE: u64 = 10;

/// Whether no copies are left, and none come any more.
fn has_discarded_all(c: &Conn, rx: &mut Rx, fd: i32) -> bool {
    if !rx.expects_copies() {
        return true;
    }
    let has_all = peer::ask(c, fd) != Word::Nothing; // before the queue is emptied
    let _ = rx.count_copies(c.rx_half()); // an error: their number stays unknown
    while rx::discard_copies(c, rx, fd).unwrap_or(false) {}
    has_all || !rx.expects_copies()
}

/// A writer's thread may wait that long for its turn on a busy machine.
const COPIES_US: u64 = 200_000;
const COPIES_BRIEF_US: u64 = 2000;
const COPY_LOOK_US: u64 = 50;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link;
    use crate::stream::stretch::tests::blocking;
    use crate::stream::unrung::tests::{SLOT, attached, silent_link, with_unread};
    use sidestep_conn::{Read, Write as Next};
    use std::io::{self, Read as _, Write as _};
    use std::net::TcpStream;
    use std::os::fd::AsRawFd;

    /// The writer of a ring has lost its processor between its look at the ring and the sending of copies. Meanwhile the reader reads all
    /// of the ring, and closes. The copies that come then are no unread data: nothing resets the connection.
    #[test]
    fn copies_of_a_slow_writer_reset_nothing() {
        let (mine, mut theirs) = blocking();
        let at = silent_link(0x7e58);
        let c = attached(at, SLOT);
        let (half, mut peer) = (c.rx_half(), with_unread(c, 100));
        let reads = |n| c.with_rx(|rx| (rx.next(half), rx.took_ring(half, n).is_ok()));
        assert!(matches!(reads(60), Ok((Ok(Read::Ring(100)), true))));
        assert_eq!(peer.end(half), Ok(()));
        assert!(half.claim_sending());
        assert!(matches!(peer.next(half, 0), Ok(Next::Unread { len: 40, .. })));
        assert!(matches!(reads(40), Ok((Ok(Read::Ring(40)), true))));
        let writer = std::thread::spawn(move || {
            while half.is_open() {
                std::thread::yield_now(); // it has no turn before the reader has left the ring
            }
            theirs.write_all(&[7; 40]).expect("copies");
            peer.sent_unread(half, 40);
            half.has_sent();
            theirs
        });
        end(c, mine.as_raw_fd(), true);
        drop(mine);
        let mut theirs = writer.join().expect("no panic");
        assert_eq!(theirs.read(&mut [0; 10]).expect("the end"), 0);
        assert!(theirs.take_error().expect("SO_ERROR").is_none());
        link::remove(at);
    }

    /// A connection that was offered just now, or long ago, and whose socket the broker has, too: after our close, whether its peer
    /// sees the end.
    fn peer_sees_the_end(
        offered_at: u64,
        at: u32,
        prepare: impl FnOnce(&Conn, &TcpStream, &mut TcpStream),
    ) -> io::Result<usize> {
        let (mine, mut theirs) = blocking();
        let at = silent_link(at);
        let c = attached(at, SLOT);
        c.offered_at.store(offered_at, Relaxed);
        prepare(c, &mine, &mut theirs);
        let brokers = mine.try_clone().expect("a copy");
        hang_up(c, mine.as_raw_fd());
        drop(mine);
        theirs.set_nonblocking(true).expect("O_NONBLOCK");
        let seen = theirs.read(&mut [0; 10]);
        drop(brokers);
        link::remove(at);
        seen
    }

    /// An offer of then is fresh however long the test is held up.
    fn later() -> u64 {
        arch::ticks() + clock::ticks_of_us(60_000_000)
    }

    #[test]
    fn the_peer_sees_the_end_though_the_broker_has_the_socket() {
        let long_ago = arch::ticks() - clock::ticks_of_us(2 * FRESH_US);
        let would_block = |seen: io::Result<usize>| seen.is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock);
        assert!(matches!(peer_sees_the_end(later(), 0x7e71, |_, _, _| {}), Ok(0)));
        assert!(would_block(peer_sees_the_end(long_ago, 0x7e72, |_, _, _| {})), "an unseen holder may have the socket");
        let in_a_call = |c: &Conn, _: &TcpStream, _: &mut TcpStream| {
            c.gate.enter();
        };
        assert!(would_block(peer_sees_the_end(later(), 0x7e73, in_a_call)), "a thread still reads");
    }

    #[test]
    fn the_peer_sees_a_reset_though_the_broker_has_the_socket() {
        let unread = |_: &Conn, mine: &TcpStream, theirs: &mut TcpStream| {
            theirs.write_all(b"unread").expect("a write");
            while tcp::queued(mine.as_raw_fd()) != Ok(6) {
                clock::nap_us(100);
            }
        };
        let abrupt = |_: &Conn, mine: &TcpStream, _: &mut TcpStream| tcp::reset_on_close(mine.as_raw_fd());
        let is_reset = |seen: io::Result<usize>| seen.is_err_and(|e| e.kind() == io::ErrorKind::ConnectionReset);
        assert!(is_reset(peer_sees_the_end(later(), 0x7e74, unread)));
        assert!(is_reset(peer_sees_the_end(later(), 0x7e75, abrupt)));
    }

    fn acknowledge_late(end: &TcpStream) {
        let off = 0i32;
        let (level, name) = (libc::IPPROTO_TCP, libc::TCP_QUICKACK);
        // SAFETY: one int, alive.
        let done = unsafe { libc::setsockopt(end.as_raw_fd(), level, name, (&raw const off).cast(), 4) };
        assert_eq!(done, 0);
    }

    /// Unread data resets the connection. A message that Nagle's algorithm holds back by then arrives nevertheless: the acknowledgement
    /// that it waits for would have come with the peer's bytes, had they not come by ring.
    #[test]
    fn a_reset_discards_no_message_that_nagle_holds_back() {
        let (mut mine, mut theirs) = blocking();
        let at = silent_link(0x7e76);
        let c = attached(at, SLOT);
        theirs.write_all(b"unread").expect("a write");
        while tcp::queued(mine.as_raw_fd()) != Ok(6) {
            clock::nap_us(100);
        }
        while tcp::queued(theirs.as_raw_fd()) != Ok(1) {
            acknowledge_late(&theirs);
            mine.write_all(b"a").expect("a write");
            mine.write_all(b"b").expect("a write");
            if tcp::queued(theirs.as_raw_fd()) == Ok(2) {
                theirs.read_exact(&mut [0; 2]).expect("both bytes");
            }
        }
        end(c, mine.as_raw_fd(), true);
        drop(mine);
        theirs.read_exact(&mut [0; 2]).expect("both bytes");
        let seen = theirs.read(&mut [0; 10]);
        assert!(seen.is_err_and(|e| e.kind() == io::ErrorKind::ConnectionReset));
        link::remove(at);
    }
}
