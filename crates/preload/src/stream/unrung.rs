//! News of a connection that the program has learnt of, or has made, although nobody has rung for it. The next wait in an epoll set
//! must find that news. So this end rings its own doorbells, as the peer does.
//!
//! A writer publishes bytes first, and rings then. In between, a call of this process can show the program the bytes, and the
//! program may ask a set at once, without waiting.

use crate::record::{Conn, flag};
use crate::{arena, critical, link, waiter};
use core::sync::atomic::Ordering::*;
use sidestep_ring::side;

/// A call has shown the program how much can be read. Rings if the ring has bytes that no wait has looked at.
#[inline]
pub fn bytes(c: &Conn) {
    let half = c.rx_half();
    if half.has_bytes() && half.tail() != c.seen_tail.load(Relaxed) {
        ring(c, doorbells(c));
    }
}

/// The program has sent bytes. If a write had found no space before, edge-triggered registrations tell that there is some, as in the
/// kernel, which does not forget that somebody waits.
#[inline]
pub fn space(c: &Conn) {
    if c.has(flag::TX_BLOCKED) {
        c.lower(flag::TX_BLOCKED);
        c.spaces.fetch_add(1, Relaxed);
        ring(c, doorbells(c));
    }
}

/// A write has found no space. A thread that sleeps in an epoll set may have been told of space before, so nobody reports the next
/// space to that thread, and its sleep has no end. It must look once more. A blocked call waits for space only if it has looked for
/// some itself.
#[cold]
pub fn no_space(c: &Conn) {
    let places = waiter::of_sets(doorbells(c));
    if places != 0 {
        ring(c, places);
    }
}

fn doorbells(c: &Conn) -> u64 {
    side::doorbells(&c.words().side[c.my_side()])
}

/// No handler may jump out in between: a doorbell that is disarmed must ring.
#[cold]
fn ring(c: &Conn, places: u64) {
    if arena::is_inherited(c) {
        return; // the doorbells are another process's
    }
    let (l, slot) = (link::get(c.link.load(Relaxed)), c.slot.load(Relaxed) as usize);
    critical::section(|| waiter::ring_all(l.mark_own(slot, places)));
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::stream::{rx, stretch};
    use crate::{broker, thread};
    use sidestep_abi::link::{Header, link_size};
    use sidestep_abi::msg::{Kind, Msg};
    use sidestep_conn::{Event, Flip, Read, Rx, Tx, Write, Writer};
    use sidestep_ring::header;
    use sidestep_sys::{fd as fdsys, mem};

    const RING: usize = 4096;
    const ERA: u32 = u32::MAX;
    pub const SLOT: usize = 3;
    /// Bytes before the stretch.
    pub const AT: u64 = 1000;

    /// A link with this number, whose peer rings nobody.
    pub fn silent_link(id: u32) -> u32 {
        // SAFETY: a name.
        let file = unsafe { libc::memfd_create(c"link".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        // SAFETY: numbers.
        assert_eq!(unsafe { libc::ftruncate(file, link_size(RING) as i64) }, 0);
        let memory = mem::file(file, link_size(RING)).expect("a mapping");
        // SAFETY: the header is at the beginning of the mapping, and made of atomics.
        header::init(unsafe { &*memory.cast::<Header>() }, sidestep_abi::VERSION, RING as u32);
        let seals = libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
        fdsys::fcntl(file, libc::F_ADD_SEALS, seals as usize).expect("seals");
        broker::LOCK.lock(thread::tid());
        let added = link::add(file, &Msg { link: id, arg: RING as u64, ..Msg::new(Kind::Link) }, ERA);
        broker::LOCK.unlock();
        added.expect("a link");
        fdsys::close(file);
        link::find(id, 0, ERA).expect("the link")
    }

    /// An attached connection in this slot of the link. Each end has read [`AT`] bytes of the other one's, and no stretch has begun.
    pub fn attached(at: u32, slot: usize) -> &'static Conn {
        let me = arena::me().expect("a place");
        let c = arena::conn(arena::alloc().expect("a record"));
        c.reset(0, arena::bit());
        c.owner.store(me, Relaxed);
        let l = link::get(at);
        let ((tx, size), (rx, _)) = (l.ring(slot, 0), l.ring(slot, 1));
        // SAFETY: of the link's mapping, whose addresses stay reserved.
        unsafe { c.map(l.slot(slot), tx, rx, size) };
        c.link.store(at, Relaxed);
        c.slot.store(slot as u32, Relaxed);
        c.side.store(0, Relaxed);
        sidestep_ring::slot::reset(c.words());
        for event in [Event::Offer { passive: false }, Event::Assign, Event::Enter] {
            c.phase.go(event).expect("a step");
        }
        assert!(c.with_rx(|rx| *rx = Rx::native(AT)).is_ok());
        assert!(c.with_tx(|end| *end = Writer::native(AT, Flip::NEVER)).is_ok());
        c
    }

    /// The peer has begun a stretch with `n` bytes in it, and this end has entered it. Returns the peer's end.
    pub fn with_unread(c: &Conn, n: usize) -> Tx {
        let (half, mut peer) = (c.rx_half(), Tx::native(AT));
        half.set_ready();
        assert!(peer.may_begin(half));
        assert_eq!(peer.begin(half), Ok(true));
        assert_eq!(peer.put_ring(half, n), Ok(()));
        assert!(matches!(c.with_rx(|rx| rx.next(half)), Ok(Ok(Read::Ring(there))) if there == n));
        peer
    }

    /// This end has begun a stretch with `n` bytes in it, and the peer has entered it. Returns the peer's end.
    pub fn with_unread_there(c: &Conn, n: usize) -> Rx {
        let (half, mut peer) = (c.tx_half(), Rx::native(AT));
        half.set_ready();
        let begun = c.with_tx(|end| {
            assert!(end.tx.may_begin(half));
            assert_eq!(end.begin(half), Ok(true));
            assert_eq!(end.put_ring(half, n), Ok(()));
        });
        assert!(begun.is_ok());
        assert_eq!(peer.next(half), Ok(Read::Ring(n)));
        peer
    }

    /// The number of the connection's record.
    pub fn index_of(c: &Conn) -> u32 {
        (0..arena::CONNS as u32).find(|index| core::ptr::eq(arena::conn(*index), c)).expect("a record")
    }

    #[test]
    fn what_a_call_has_shown_is_news_although_the_peer_has_not_rung_yet() {
        let at = silent_link(0x7e57);
        let c = attached(at, SLOT);
        let place = waiter::acquire().expect("a waiter");
        side::add_doorbell(&c.words().side[0], place);
        let rings = || fdsys::poll_now(waiter::doorbell(place), libc::POLLIN) != 0;
        let hear = || {
            fdsys::hush(waiter::doorbell(place));
            waiter::poll_news(place, |_| ());
            waiter::listen(place);
        };
        hear();
        // The peer has published 100 bytes, and another thread has its processor before it rings.
        let (half, mut peer) = (c.rx_half(), Tx::native(AT));
        half.set_ready();
        assert!(peer.may_begin(half));
        assert_eq!(peer.begin(half), Ok(true));
        assert_eq!(peer.next(half, 100), Ok(Write::Ring(RING)));
        assert_eq!(peer.put_ring(half, 100), Ok(()));
        assert!(!waiter::has_news(place));
        assert_eq!(rx::readable(c, -1), 100);
        assert!(waiter::has_news(place) && rings(), "the next wait finds what FIONREAD has counted");
        // That wait looks.
        hear();
        c.seen_tail.store(half.tail(), Relaxed);
        assert_eq!(rx::readable(c, -1), 100);
        assert!(!waiter::has_news(place) && !rings(), "no news");
        // A write has found no space, and the next one has found some.
        c.raise(flag::TX_BLOCKED);
        let before = c.spaces.load(Relaxed);
        space(c);
        assert!(waiter::has_news(place) && rings() && !c.has(flag::TX_BLOCKED));
        assert_eq!(c.spaces.load(Relaxed), before + 1);
        hear();
        space(c);
        assert!(!waiter::has_news(place), "nobody had waited");
        side::remove_doorbell(&c.words().side[0], place);
        waiter::release(place);
        link::remove(at);
    }

    #[test]
    fn a_write_without_space_wakes_who_sleeps_in_a_set() {
        let at = silent_link(0x7e5d);
        let c = attached(at, SLOT);
        let rings = |place| fdsys::poll_now(waiter::doorbell(place), libc::POLLIN) != 0;
        let sleep = |place| {
            fdsys::hush(waiter::doorbell(place));
            waiter::poll_news(place, |_| ());
            waiter::listen(place);
        };
        let (sets, calls) = (waiter::acquire().expect("a waiter"), waiter::acquire_for_thread().expect("another one"));
        for place in [sets, calls] {
            side::add_doorbell(&c.words().side[0], place);
            sleep(place);
        }
        stretch::blocked(c);
        assert!(waiter::has_news(sets) && rings(sets), "its thread has been told of space before");
        assert!(!waiter::has_news(calls) && !rings(calls), "its thread looks for itself");
        sleep(sets);
        stretch::blocked(c);
        assert!(!waiter::has_news(sets) && !rings(sets), "its thread has looked");
        for place in [sets, calls] {
            side::remove_doorbell(&c.words().side[0], place);
            waiter::release(place);
        }
        link::remove(at);
    }
}
