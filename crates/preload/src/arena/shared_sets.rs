//! Records of the epoll sets that several processes of a family have.

use super::dead::reap_all;
use super::family::me;
use super::memory::{FamilySet, arena};
use core::sync::atomic::Ordering::*;

/// The record of a set with this number, which came from [`alloc_set`].
pub fn family_set(number: u32) -> Option<&'static FamilySet> {
    let index = number.checked_sub(1)?;
    arena()?.sets.get(index as usize)
}

/// A record for a set of ours. Returns its number, from 1 on.
pub fn alloc_set() -> Option<u32> {
    let (a, mine) = (arena()?, 1u64 << me()?);
    let take = |(index, s): (usize, &FamilySet)| {
        if s.holders.load(Relaxed) != 0 {
            return false;
        }
        // Before the record has a holder: whoever removes the bits of the dead looks at all records that may have some.
        a.fresh_sets.fetch_max(index as u32 + 1, AcqRel);
        s.holders.compare_exchange(0, mine, AcqRel, Relaxed).is_ok()
    };
    let free = || a.sets.iter().enumerate().position(take);
    let index = free().or_else(|| {
        reap_all();
        free()
    })?;
    let s = &a.sets[index];
    s.users.store(0, Relaxed);
    s.managers.store(0, Relaxed);
    s.is_shared.store(0, Release);
    Some(index as u32 + 1)
}
