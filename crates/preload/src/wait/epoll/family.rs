//! What the processes of a family tell each other about a set that several of them have.

use crate::arena::{self, FamilySet};
use crate::generation;
use crate::wait::sets::Set;
use core::sync::atomic::{Ordering::*, fence};
use sidestep_sys::{arch, clock, descriptors};

/// Least time between two questions to the kernel about one set, each of which may take a millisecond.
const ASK_US: u64 = 250_000;

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
    let Some(r) = record(s) else { return false };
    // SYNC executed: a process that becomes a holder counts in `entries`, clears its bit in `executed`, and then sets that in `holders`.
    let entries = r.entries.load(SeqCst);
    let holders = r.holders.load(SeqCst);
    let executed = holders & r.executed.load(SeqCst) & !arena::bit();
    arena::any_other_lately(holders & !executed, &s.held.until) || executed != 0 && !have_closed(s, executed, entries)
}

/// Whether all these relatives, which have executed other programs, have the set no more. Those programs do not tell, so the kernel is
/// asked. `entries`: those of the record, before `places` were read. Called by one thread at a time.
#[cold]
fn have_closed(s: &Set, places: u64, entries: u32) -> bool {
    if s.held.closed_by.load(Relaxed) == places && s.held.closed_at.load(Relaxed) == entries {
        return true;
    }
    let now = arch::ticks();
    if now < s.held.until.load(Relaxed) {
        return false;
    }
    let epfd = s.fd.load(Relaxed);
    let has_closed =
        |place| arena::process_at(place).is_some_and(|pid| descriptors::has_epoll_set(pid, epfd) == Some(false));
    let all = (0..u64::BITS).filter(|place| places >> place & 1 != 0).all(has_closed);
    if all {
        s.held.closed_at.store(entries, Relaxed);
        s.held.closed_by.store(places, Relaxed);
    } else {
        s.held.until.store(now + clock::ticks_of_us(ASK_US), Relaxed);
    }
    all
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

/// The process with this bit also has the set.
pub fn enter(r: &FamilySet, bit: u64) {
    r.entries.fetch_add(1, SeqCst);
    r.executed.fetch_and(!bit, SeqCst);
    r.holders.fetch_or(bit, SeqCst);
}
