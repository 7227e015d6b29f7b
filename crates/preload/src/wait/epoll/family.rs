//! What the processes of a family tell each other about a set that several of them have.

use crate::arena::{self, FamilySet};
use crate::generation;
use crate::wait::sets::Set;
use core::sync::atomic::{Ordering::*, fence};

pub fn record(s: &Set) -> Option<&'static FamilySet> {
    arena::family_set(s.family.load(Acquire))
}

/// Whether this process has waited for the set or registered something in it: the set is not only inherited.
#[inline]
pub fn is_used_here(s: &Set) -> bool {
    s.used_in.load(Relaxed) == generation::get() + 1
}

/// Whether a relative also has the set, according to a recent check.
pub fn is_held(s: &Set) -> bool {
    record(s).is_some_and(|r| arena::any_other_lately(r.holders.load(Acquire), &s.held_until))
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
