//! Nested sets: sets that are watched in another set, or in poll(2).

use super::giveback::{drop_set_aside, for_each_managed, hand_back};
use super::mask::watch_less;
use super::news::{self, queue_writers};
use super::{own_waiter, report};
use crate::wait::UNKNOWN_BELL_US;
use crate::wait::sets::{self, Inner, Set};
use crate::{arena, link, stream::due, waiter};
use core::sync::atomic::{AtomicU32, Ordering::*};
use sidestep_abi::link::Doorbell;
use sidestep_ring::doorbell;
use sidestep_sys::arch;

/// How often a set that is rung all the time for nothing is looked at, before it becomes readable anyway.
const LOOKS: u32 = 8;

/// Number of sets that have ever been nested.
static NESTED: AtomicU32 = AtomicU32::new(0);

/// The set is nested from now on: a ring's news must make it readable, and so must news of the sets in it.
pub fn nest(index: u32) {
    let s = sets::get(index);
    if !s.nested.swap(true, AcqRel) {
        NESTED.fetch_add(1, AcqRel);
        for_each_managed(s, |fd, _| {
            drop_set_aside(s, fd);
            s.with(|inner| {
                watch_less(s, &mut inner.regs, fd);
                inner.hear_since(fd, arch::ticks()); // the mask asks for no space any more, so a look asks again
            });
        });
        arm_nested(s);
    }
    refresh_nested();
}

/// Before and after a wait that may look at nested sets: makes them readable if, and only if, they have something to report. A
/// thread that watches such a set by edge must see each arrival once. So after the wait the doorbells are armed, and the next
/// arrival rings by itself. Before the next wait, news that has rung already does not ring again.
pub(super) fn refresh_nested() {
    if NESTED.load(Relaxed) != 0 {
        sets::all().filter(|(_, s)| s.nested.load(Relaxed)).for_each(|(_, s)| refresh(s));
    }
}

/// Whether some peer lacks the doorbell of a nested set: its writes ring nobody.
pub(super) fn is_unheard() -> bool {
    let unheard = |s: &Set| own_waiter(s).is_some_and(|p| !link::all().all(|l| l.knows(p)));
    NESTED.load(Relaxed) != 0 && sets::all().any(|(_, s)| s.nested.load(Relaxed) && unheard(s))
}

/// Longest sleep of a native wait that watches nested sets. None: no limit.
pub fn native_cap() -> Option<u64> {
    if is_unheard() {
        return Some(UNKNOWN_BELL_US);
    }
    (NESTED.load(Relaxed) != 0 && due::expects_space()).then_some(due::STALLED_US)
}

/// Work after such a sleep.
pub fn poll_nested() {
    if due::has_come() {
        queue_writers();
    }
    refresh_nested();
}

/// Rings for everything that is there, even if it has rung already: a wait inside the set has consumed the doorbell's event, or
/// the program has changed its interest.
pub(super) fn arm_nested(s: &Set) {
    let Some(p) = own_waiter(s) else { return };
    s.shown.alone(|| {
        s.shown.forget();
        show(s, p);
    });
}

fn refresh(s: &Set) {
    if let Some(p) = own_waiter(s) {
        s.shown.alone(|| look_again(s, p));
    }
}

fn look_again(s: &Set, p: u32) {
    let unrung = |b: &Doorbell| doorbell::is_armed(b) && doorbell::is_ready(b);
    if waiter::was_left(p) || link::all().any(|l| unrung(l.my_doorbell(p))) {
        s.shown.forget(); // nobody has heard a ring, or the peer that has news lacks the doorbell
    } else if !is_armed(p) {
        s.shown.note(); // the producer that disarmed the doorbell has rung it
    }
    show(s, p);
}

/// Leaves the doorbell armed although nobody sleeps, and rings it if there is something that it has not rung for.
fn show(s: &Set, p: u32) {
    for _ in 0..LOOKS {
        doorbell::arm(link::all().map(|l| l.my_doorbell(p)));
        if has_something(s, p) {
            if s.shown.note() {
                waiter::ring(p);
            }
            return;
        }
        // `hush` also removes rings that came since that look, so the next ring counts as the first.
        s.shown.forget();
        sidestep_sys::fd::hush(waiter::doorbell(p));
        if !has_something(s, p) && is_armed(p) {
            return;
        }
        // A producer has rung and disarmed the doorbell; its news may be nothing that the program wants.
    }
    s.shown.note();
    waiter::ring(p);
}

/// Whether nobody has rung here since the last look.
fn is_armed(p: u32) -> bool {
    link::all().all(|l| doorbell::is_armed(l.my_doorbell(p)))
}

fn has_something(s: &Set, p: u32) -> bool {
    news::list_rung(s, p);
    s.with(|inner| any_ready(s, inner)) != Some(false)
}

/// Whether a listed registration would be reported. Removes those from the list that are not ready.
fn any_ready(s: &Set, inner: &mut Inner) -> bool {
    while let Some((number, ..)) = inner.ready.list.first(&mut inner.regs) {
        let fd = number as i32;
        if let Some(r) = inner.reg(fd).filter(|r| r.is_awaited()).map(|r| *r) {
            let c = arena::conn(r.conn);
            if !c.is_attached() {
                hand_back(s, &mut inner.regs, fd); // from now on the kernel makes the set readable
            } else {
                let look = report::poll_registration(&r, c, fd);
                if look.is_to_be_told {
                    return true;
                }
                report::expect_space(s, &r, c, fd, look.found);
            }
        }
        inner.ready.list.remove(&mut inner.regs, number);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::{ET, kernel_ctl, kick, tag, wait};
    use super::*;
    use crate::fdtable::{self, Kind};
    use crate::stream::unrung::tests::{SLOT, attached, index_of, silent_link, with_unread};
    use crate::wait::readiness::IN;
    use crate::wait::sets::reg;
    use crate::{debts, generation};
    use libc::epoll_event;
    use sidestep_sys::fd as fdsys;
    use std::hint::black_box;

    /// A descriptor that no test has.
    const FD: i32 = 4001;

    /// How often two threads meet.
    const ROUNDS: u32 = 500;

    /// Makes it a nested set that waits for bytes of this connection.
    fn watches(s: &Set, place: u32, conn: u32) {
        s.set_waiter(place);
        s.nested.store(true, Relaxed);
        s.with(|inner| {
            let r = inner.register(FD, (IN, 7), reg::PRESENT | reg::MANAGED).expect("a registration");
            r.conn = conn;
        });
    }

    /// Of a test: its set and its link.
    fn end(s: &Set, at: u32) {
        s.destroy();
        s.refs.store(0, Release);
        link::remove(at);
    }

    /// A sleep in the set hears the ring, but a handler jumps out. The sleep is over when this has returned.
    #[inline(never)]
    fn is_jumped_out_of(place: u32, ring: impl FnOnce()) {
        let below = black_box([0_u8; 4096]);
        waiter::arm(place);
        ring();
        fdsys::hush(waiter::doorbell(place));
        black_box(&below);
    }

    #[test]
    fn news_that_a_wait_left_by_a_jump_has_heard_makes_the_set_readable() {
        let at = silent_link(0x7e63);
        let (c, index) = (attached(at, SLOT), sets::create(-1).expect("a record"));
        let (s, place) = (sets::get(index), waiter::acquire().expect("a waiter"));
        arena::local(index_of(c)).fd.store(FD as u32, Relaxed);
        link::get(at).set_conn(SLOT as u32, Some(index_of(c)));
        watches(s, place, index_of(c));
        with_unread(c, 100);
        is_jumped_out_of(place, || waiter::ring_all(link::get(at).mark_own(SLOT, 1 << place)));
        assert_eq!(fdsys::poll_now(waiter::doorbell(place), libc::POLLIN), 0);
        debts::settle();
        assert_ne!(fdsys::poll_now(waiter::doorbell(place), libc::POLLIN), 0, "another thread may sleep here");
        refresh(s);
        assert_ne!(fdsys::poll_now(waiter::doorbell(place), libc::POLLIN), 0, "threads sleep in an outer set");
        end(s, at);
    }

    /// A wait in the set has heard the doorbell, which a producer had disarmed and rung, and looks what is left. Meanwhile another thread
    /// begins a wait of its own.
    #[test]
    fn two_threads_that_look_at_once_leave_the_set_readable() {
        let at = silent_link(0x7e6c);
        let (c, index) = (attached(at, SLOT), sets::create(-1).expect("a record"));
        let (s, place) = (sets::get(index), waiter::acquire().expect("a waiter"));
        watches(s, place, index_of(c));
        with_unread(c, 100);
        let together = AtomicU32::new(0);
        let meet = |number: u32| {
            together.fetch_add(1, AcqRel);
            while together.load(Acquire) < number {
                std::hint::spin_loop();
            }
        };
        let silent = std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    meet(4 * round + 2);
                    refresh(s);
                    meet(4 * round + 4);
                }
            });
            let is_silent = |round: &u32| {
                s.with(|inner| inner.hear_edge(FD));
                doorbell::disarm(link::get(at).my_doorbell(place));
                fdsys::hush(waiter::doorbell(place));
                meet(4 * round + 2);
                arm_nested(s);
                meet(4 * round + 4);
                fdsys::poll_now(waiter::doorbell(place), libc::POLLIN) == 0
            };
            (0..ROUNDS).filter(is_silent).count()
        });
        assert_eq!(silent, 0, "of {ROUNDS} times a thread would sleep in the outer set for ever");
        end(s, at);
    }

    /// A thread waits in a nested set when another one makes that a waiter.
    #[test]
    fn the_set_stays_readable_when_a_native_wait_has_heard_its_first_ring() {
        let at = silent_link(0x7e6d);
        let epfd = fdsys::doorbell().expect("a set");
        let (c, index) = (attached(at, SLOT), sets::create(epfd).expect("a record"));
        let (s, place) = (sets::get(index), waiter::acquire().expect("a waiter"));
        assert!(fdtable::set(epfd, Kind::Set(index)));
        nest(index);
        let told = std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let mut out = [epoll_event { events: 0, u64: 0 }];
                wait(index, &mut out, Some(10_000_000_000), core::ptr::null(), || -1)
            });
            while s.natives.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            with_unread(c, 100);
            watches(s, place, index_of(c));
            let bell = waiter::doorbell(place);
            kernel_ctl(epfd, libc::EPOLL_CTL_ADD, bell, IN | ET, tag::of_doorbell()).expect("a doorbell in its set");
            let is_first = s.with(|inner| inner.hear_edge(FD));
            kick(s, is_first == Some(true));
            waits.join().expect("no panic")
        });
        assert_eq!(told, 1);
        assert_ne!(
            fdsys::poll_now(epfd, libc::POLLIN),
            0,
            "the bytes are still unread, and threads sleep in an outer set"
        );
        fdtable::set(epfd, Kind::Other);
        fdsys::close(epfd);
        end(s, at);
    }

    #[test]
    fn a_set_of_the_parents_takes_no_news_of_a_waiter_of_the_childs() {
        let at = silent_link(0x7e67);
        let (s, place) = (sets::get(sets::create(-1).expect("a record")), waiter::acquire().expect("a waiter"));
        s.set_waiter(place);
        s.nested.store(true, Relaxed);
        s.generation.store(generation::get() + 1, Relaxed);
        let _ = link::get(at).mark_own(SLOT, 1 << place);
        refresh(s);
        assert!(waiter::has_news(place), "a set of the child's with a waiter of this number would never hear");
        s.refs.store(0, Release);
        waiter::release(place);
        link::remove(at);
    }
}
