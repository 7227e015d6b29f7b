//! Sets that are watched from outside: in another set, or in poll(2).

use super::giveback::{for_each_managed, unpark};
use super::mask::watch_less;
use super::news::{self, queue_writers};
use super::report;
use crate::wait::UNKNOWN_BELL_US;
use crate::wait::sets::{self, Inner, Reg, Set};
use crate::{arena, link, stream::due, waiter};
use core::sync::atomic::{AtomicU32, Ordering::*};
use sidestep_abi::link::Doorbell;
use sidestep_ring::doorbell;

/// Looks at a set that is rung all the time for nothing, before it is called readable all the same.
const LOOKS: u32 = 8;

/// Sets that have ever been watched from outside.
static NESTED: AtomicU32 = AtomicU32::new(0);

/// A set that others watch must become readable by itself when a ring does; so must the sets in it.
pub fn nest(index: u32) {
    let s = sets::get(index);
    if !s.nested.swap(true, AcqRel) {
        NESTED.fetch_add(1, AcqRel);
        for_each_managed(s, |fd, _| {
            unpark(s, fd);
            s.with(|inner| watch_less(s, &mut inner.regs, fd));
        });
        arm_nested(s);
    }
    refresh_nested();
}

/// Before and after a wait that may look at such sets: they are readable if, and only if, they have something. Who
/// watches them by edge is told of each arrival once: after the wait the doorbells are armed, so that the next arrival
/// rings by itself; before the next wait nothing that has been rung for is rung for again.
pub(super) fn refresh_nested() {
    if NESTED.load(Relaxed) != 0 {
        sets::all().filter(|(_, s)| s.nested.load(Relaxed)).for_each(|(_, s)| refresh(s));
    }
}

/// Whether the doorbell of such a set is not in the hands of all peers yet: what they write meanwhile rings nobody.
pub(super) fn is_unheard() -> bool {
    let unheard = |s: &Set| s.place().is_some_and(|p| !link::all().all(|l| l.knows(p)));
    NESTED.load(Relaxed) != 0 && sets::all().any(|(_, s)| s.nested.load(Relaxed) && unheard(s))
}

/// How long a wait may sleep that is the kernel's own, though it watches sets of ours.
pub fn native_cap() -> Option<u64> {
    if is_unheard() {
        return Some(UNKNOWN_BELL_US);
    }
    (NESTED.load(Relaxed) != 0 && due::expects_space()).then_some(due::STALLED_US)
}

/// What such a wait has to do when it has slept so long.
pub fn poll_nested() {
    if due::has_come() {
        queue_writers();
    }
    refresh_nested();
}

/// Rings for what is there already, even if it has been rung for: a wait in the set has used up the doorbell's event,
/// or the program has changed what it asks for.
pub(super) fn arm_nested(s: &Set) {
    s.shown.store(false, Relaxed);
    if let Some(p) = s.place() {
        show(s, p);
    }
}

fn refresh(s: &Set) {
    let Some(p) = s.place() else { return };
    let unrung = |b: &Doorbell| doorbell::is_armed(b) && doorbell::is_ready(b);
    if link::all().any(|l| unrung(l.my_bell(p))) {
        s.shown.store(false, Relaxed); // by a peer that does not hold the doorbell yet
    } else if !is_armed(p) {
        s.shown.store(true, Relaxed); // whoever has disarmed it has rung
    }
    show(s, p);
}

/// Leaves the doorbell armed although nobody sleeps, and rings it if there is something that it has not told of.
fn show(s: &Set, p: u32) {
    for _ in 0..LOOKS {
        doorbell::arm(link::all().map(|l| l.my_bell(p)));
        if has_something(s, p) {
            if !s.shown.swap(true, Relaxed) {
                waiter::ring(p);
            }
            return;
        }
        // Who has rung since that look is hushed too, so the next one counts as the first.
        s.shown.store(false, Relaxed);
        sidestep_sys::fd::hush(waiter::doorbell(p));
        if !has_something(s, p) && is_armed(p) {
            return;
        }
        // Somebody has rung and disarmed the doorbell, though it may have been nothing to the program.
    }
    s.shown.store(true, Relaxed);
    waiter::ring(p);
}

/// Whether nobody has rung here since the last look.
fn is_armed(p: u32) -> bool {
    link::all().all(|l| doorbell::is_armed(l.my_bell(p)))
}

fn has_something(s: &Set, p: u32) -> bool {
    news::list_rung(s, p);
    s.with(any_ready) != Some(false)
}

/// Whether something in the list would be reported. Leaves the list as it is, but for what is not ready.
fn any_ready(inner: &mut Inner) -> bool {
    while let Some((number, ..)) = inner.ready.list.first(&mut inner.regs) {
        let fd = number as i32;
        let is_to_be_told = |r: &mut Reg| {
            let c = arena::conn(r.conn);
            // If it is native again, the next wait in the set gives the registration back to the kernel.
            !c.is_attached() || report::poll_registration(r, c, fd).is_to_be_told
        };
        if inner.reg(fd).filter(|r| r.is_awaited()).is_some_and(is_to_be_told) {
            return true;
        }
        inner.ready.list.remove(&mut inner.regs, number);
    }
    false
}
