//! Sets that are watched from outside: in another set, or in poll(2).

use super::harvest::queue_news;
use super::{ET, EXCLUSIVE, ONESHOT};
use crate::wait::readiness;
use crate::wait::sets::{self, Inner, Set};
use crate::{arena, link, place};
use core::sync::atomic::{AtomicU32, Ordering::*};
use sidestep_abi::link::Bell;
use sidestep_ring::bell;

/// Looks at a set that is rung all the time for nothing, before it is called readable all the same.
const LOOKS: u32 = 8;

/// Sets that have ever been watched from outside.
static NESTED: AtomicU32 = AtomicU32::new(0);

/// A set that others watch must become readable by itself when a ring does; so must the sets in it.
pub fn nest(index: u32) {
    let s = sets::get(index);
    if !s.nested.swap(true, AcqRel) {
        NESTED.fetch_add(1, AcqRel);
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
    let unrung = |b: &Bell| bell::is_armed(b) && bell::is_ready(b);
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
        link::all().for_each(|l| bell::doze(l.my_bell(p)));
        bell::settle();
        if has_something(s, p) {
            if !s.shown.swap(true, Relaxed) {
                sidestep_sys::fd::ring(place::eventfd(p));
            }
            return;
        }
        // Who has rung since that look is hushed too, so the next one counts as the first.
        s.shown.store(false, Relaxed);
        sidestep_sys::fd::hush(place::eventfd(p));
        if !has_something(s, p) && is_armed(p) {
            return;
        }
        // Somebody has rung and disarmed the doorbell, though it may have been nothing to the program.
    }
    s.shown.store(true, Relaxed);
    sidestep_sys::fd::ring(place::eventfd(p));
}

/// Whether nobody has rung here since the last look.
fn is_armed(p: u32) -> bool {
    link::all().all(|l| bell::is_armed(l.my_bell(p)))
}

fn has_something(s: &Set, p: u32) -> bool {
    queue_news(s, p);
    s.with(any_ready) != Some(false)
}

/// Whether something in the queue would be reported. Leaves the queue as it is, but for what is not ready.
fn any_ready(inner: &mut Inner) -> bool {
    for _ in 0..inner.queued {
        let Some(fd) = inner.pop() else { return false };
        let Some(r) = inner.reg(fd).copied() else { continue };
        if !r.is_awaited() {
            continue;
        }
        let interest = r.events & !(ET | ONESHOT | EXCLUSIVE);
        if readiness::events(arena::conn(r.conn), fd, interest) != 0 {
            inner.queue(fd);
            return true;
        }
    }
    false
}
