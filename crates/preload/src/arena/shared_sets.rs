//! Records of the epoll sets that several processes of a family have.

use super::dead::reap_all;
use super::family::me;
use super::memory::{FamilySet, arena};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// What a process has found out lately about the relatives that have one of its sets, too.
pub struct Held {
    /// Time (ticks) until which some relative is assumed to have the set.
    pub until: AtomicU64,
    /// Relatives that have executed programs which have closed the set, as places in the family.
    pub closed_by: AtomicU64,
    /// `entries` of the record before that was found out.
    pub closed_at: AtomicU32,
}

impl Held {
    pub const fn new() -> Held {
        Held { until: AtomicU64::new(0), closed_by: AtomicU64::new(0), closed_at: AtomicU32::new(0) }
    }

    pub fn forget(&self) {
        self.until.store(0, Relaxed);
        self.closed_by.store(0, Relaxed);
    }
}

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
    s.executed.store(0, Relaxed);
    s.is_shared.store(0, Release);
    Some(index as u32 + 1)
}
