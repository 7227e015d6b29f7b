//! Sets that are watched from outside: in another set, or in poll(2).

use super::harvest::queue_news;
use super::{ET, EXCLUSIVE, ONESHOT};
use crate::wait::readiness;
use crate::wait::sets::{self, Inner, Set};
use crate::{arena, link, place};
use core::sync::atomic::{AtomicU32, Ordering::*};
use sidestep_ring::bell;

/// Looks at a set that is rung all the time for nothing, before it is called readable all the same.
const LOOKS: u32 = 8;

/// Sets that have ever been watched from outside.
static NESTED: AtomicU32 = AtomicU32::new(0);

/// A set that others watch must become readable by itself when a ring does.
pub fn nest(index: u32) {
    let s = sets::get(index);
    if !s.nested.swap(true, AcqRel) {
        NESTED.fetch_add(1, AcqRel);
    }
    arm_nested(s);
}

/// Before a wait that may look at such sets: they are readable if, and only if, they have something.
pub(super) fn refresh_nested() {
    if NESTED.load(Relaxed) != 0 {
        sets::all().filter(|(_, s)| s.nested.load(Relaxed)).for_each(|(_, s)| arm_nested(s));
    }
}

/// Leaves the doorbell armed although nobody sleeps, and rings it if there is something already.
pub(super) fn arm_nested(s: &Set) {
    let Some(p) = s.place() else { return };
    for _ in 0..LOOKS {
        link::all().for_each(|l| bell::doze(l.my_bell(p)));
        bell::settle();
        // Before the look: whoever rings from now on has something that the look may miss.
        sidestep_sys::fd::hush(place::eventfd(p));
        queue_news(s, p);
        if s.with(any_ready) != Some(false) {
            break;
        }
        if link::all().all(|l| bell::is_armed(l.my_bell(p))) {
            return;
        }
        // Somebody has rung and disarmed the doorbell, but it was nothing to the program.
    }
    sidestep_sys::fd::ring(place::eventfd(p));
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
