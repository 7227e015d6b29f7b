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
        ring(c);
    }
}

/// The program has sent bytes. If a write had found no space before, edge-triggered registrations tell that there is some, as in the
/// kernel, which does not forget that somebody waits.
#[inline]
pub fn space(c: &Conn) {
    if c.has(flag::TX_BLOCKED) {
        c.lower(flag::TX_BLOCKED);
        c.spaces.fetch_add(1, Relaxed);
        ring(c);
    }
}

/// No handler may jump out in between: a doorbell that is disarmed must ring.
#[cold]
fn ring(c: &Conn) {
    if arena::is_inherited(c) {
        return; // the doorbells are another process's
    }
    let places = side::doorbells(&c.words().side[c.my_side()]);
    let (l, slot) = (link::get(c.link.load(Relaxed)), c.slot.load(Relaxed) as usize);
    critical::section(|| waiter::ring_all(l.mark_own(slot, places)));
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::stream::rx;
    use sidestep_abi::link::{Header, link_size};
    use sidestep_abi::msg::{Kind, Msg};
    use sidestep_conn::{Event, Rx, Tx, Write};
    use sidestep_ring::{header, slot};
    use sidestep_sys::{fd as fdsys, mem};

    const RING: usize = 4096;
    const ERA: u32 = u32::MAX;
    const SLOT: usize = 3;
    /// Bytes before the stretch.
    const AT: u64 = 1000;

    /// A link of this number, whose peer rings nobody.
    pub fn silent_link(number: u32) -> u32 {
        // SAFETY: a name.
        let file = unsafe { libc::memfd_create(c"link".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        // SAFETY: numbers.
        assert_eq!(unsafe { libc::ftruncate(file, link_size(RING) as i64) }, 0);
        let memory = mem::file(file, link_size(RING)).expect("a mapping");
        // SAFETY: the header is at the beginning of the mapping, and made of atomics.
        header::init(unsafe { &*memory.cast::<Header>() }, sidestep_abi::VERSION, RING as u32);
        let seals = libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
        fdsys::fcntl(file, libc::F_ADD_SEALS, seals as usize).expect("seals");
        link::add(file, &Msg { link: number, arg: RING as u64, ..Msg::new(Kind::Link) }, ERA).expect("a link");
        fdsys::close(file);
        link::find(number, 0, ERA).expect("the link")
    }

    pub fn attached(at: u32) -> &'static Conn {
        let me = arena::me().expect("a place");
        let c = arena::conn(arena::alloc().expect("a record"));
        c.reset(0, arena::bit());
        c.owner.store(me, Relaxed);
        let l = link::get(at);
        let ((tx, size), (rx, _)) = (l.ring(SLOT, 0), l.ring(SLOT, 1));
        // SAFETY: of the link's mapping, whose addresses stay reserved.
        unsafe { c.map(l.slot(SLOT), tx, rx, size) };
        c.link.store(at, Relaxed);
        c.slot.store(SLOT as u32, Relaxed);
        c.side.store(0, Relaxed);
        slot::reset(c.words());
        for event in [Event::Offer { passive: false }, Event::Assign, Event::Enter] {
            c.phase.go(event).expect("a step");
        }
        assert!(c.with_rx(|rx| *rx = Rx::native(AT)).is_ok());
        c
    }

    #[test]
    fn what_a_call_has_shown_is_news_although_the_peer_has_not_rung_yet() {
        let at = silent_link(0x7e57);
        let c = attached(at);
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
}
