//! What the processes of a family tell each other about a set that several of them have.

use crate::arena::{self, FamilySet};
use crate::wait::sets::Set;
use core::sync::atomic::{Ordering::*, fence};
use sidestep_sys::{arch, clock};

/// Least time between two checks of whether relatives still have the set.
const HELD_US: u64 = 10_000;

pub fn record(s: &Set) -> Option<&'static FamilySet> {
    arena::family_set(s.family.load(Acquire))
}

/// Whether a relative also has the set, according to a recent check.
pub fn is_held(s: &Set) -> bool {
    let Some(r) = record(s) else { return false };
    let now = arch::ticks();
    if now < s.held_until.load(Relaxed) {
        return true;
    }
    let held = arena::has_others(&r.holders);
    s.held_until.store(if held { now + clock::ticks_of_us(HELD_US) } else { 0 }, Relaxed);
    held
}

/// Whether a registration may be taken over now.
pub fn may_manage(s: &Set) -> bool {
    let Some(r) = record(s) else { return !s.is_shared.load(Relaxed) };
    if r.managers.load(Relaxed) & arena::bit() == 0 && arena::has_others(&r.holders) {
        r.managers.fetch_or(arena::bit(), SeqCst);
    }
    // SYNC shared: we say that we manage, then look whether the set is shared; a process that shares the set says so, then
    // looks whether anybody manages.
    fence(SeqCst);
    r.is_shared.load(SeqCst) == 0
}
