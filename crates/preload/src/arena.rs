//! Memory of the records: one mapping, made at the first connection, shared with children that are forked later.

use crate::fdtable::{self, Kind};
pub use crate::record::Conn;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use sidestep_conn::Event;
use sidestep_sys::{mem, process};

pub use crate::blocked::CONNS;
/// Most processes of a family that hold connections at once.
pub const FAMILY: usize = 64;

#[repr(C, align(64))]
struct Arena {
    /// Head of the free list: index + 1 in the low half, a counter against ABA in the high half.
    free: AtomicU64,
    /// Records from here on have never been used.
    fresh: AtomicU32,
    /// Process numbers by place; 0: the place is free.
    family: [AtomicU32; FAMILY],
    conns: [Conn; CONNS],
    sets: [FamilySet; FAMILY_SETS],
}

/// Most epoll sets that the processes of a family inherit from each other.
const FAMILY_SETS: usize = 4096;

/// What the processes of a family tell each other about an epoll set that several of them have. Bitmaps have a bit for
/// each place in the family.
pub struct FamilySet {
    /// Processes that have the set. 0: the record is free.
    pub holders: AtomicU64,
    /// Processes that have waited for the set, or have registered something there.
    pub users: AtomicU64,
    /// Processes that have managed registrations there, which the others do not know.
    pub managers: AtomicU64,
    /// 1: several processes have used the set. Nothing is managed there from now on.
    pub is_shared: AtomicU32,
}

static ARENA: AtomicPtr<Arena> = AtomicPtr::new(core::ptr::null_mut());
/// Place of this process in the family, + 1; 0: none yet.
static PLACE: AtomicU32 = AtomicU32::new(0);

/// What each process has of a connection for itself.
pub struct Local {
    /// How many descriptors of this process stand for the connection.
    pub refs: AtomicU32,
    /// One of these descriptors.
    pub fd: AtomicU32,
    /// 1: the program has closed the connection while a call was blocked on it. The connection lives on under a descriptor of
    /// the library's own.
    pub orphan: AtomicU32,
}

static LOCAL: [Local; CONNS] =
    [const { Local { refs: AtomicU32::new(0), fd: AtomicU32::new(0), orphan: AtomicU32::new(0) } }; CONNS];

pub fn local(index: u32) -> &'static Local {
    &LOCAL[index as usize]
}

fn arena() -> Option<&'static Arena> {
    let mut p = ARENA.load(Acquire);
    if p.is_null() {
        p = mem::anonymous(size_of::<Arena>(), true).ok()?.cast();
        // SYNC arena: zero bytes are a valid, empty arena.
        if let Err(other) = ARENA.compare_exchange(core::ptr::null_mut(), p, AcqRel, Acquire) {
            p = other; // another thread was first; our mapping has never been touched and costs nothing
        }
    }
    // SAFETY: a live mapping of that size that is never unmapped; all fields are atomics or have their own
    // locks, and zero is a valid value of each.
    Some(unsafe { &*p })
}

/// The record with this index, which must come from [`alloc`] or from an entry of the descriptor table.
#[inline]
pub fn conn(index: u32) -> &'static Conn {
    let p = ARENA.load(Acquire);
    // SAFETY: an index exists only after the arena does; see `arena`.
    unsafe { &(*p).conns[index as usize & (CONNS - 1)] }
}

/// A free record.
pub fn alloc() -> Option<u32> {
    let a = arena()?;
    loop {
        let head = a.free.load(Acquire);
        let index = (head as u32).checked_sub(1);
        let Some(index) = index else { break };
        let next = u64::from(a.conns[index as usize].next_free.load(Relaxed));
        let tagged = (head >> 32).wrapping_add(1) << 32 | next;
        if a.free.compare_exchange(head, tagged, AcqRel, Relaxed).is_ok() {
            return Some(index);
        }
    }
    let fresh = a.fresh.fetch_add(1, Relaxed);
    if (fresh as usize) < CONNS {
        return Some(fresh);
    }
    a.fresh.store(CONNS as u32, Relaxed);
    None
}

/// Gives a record back. No effect if it has been given back already: the list would have the record twice.
pub fn free(index: u32) {
    let Some(a) = arena() else { return };
    let c = &a.conns[index as usize];
    if c.phase.go(Event::Free).is_none() {
        return;
    }
    loop {
        let head = a.free.load(Acquire);
        c.next_free.store(head as u32, Relaxed);
        let tagged = (head >> 32).wrapping_add(1) << 32 | u64::from(index + 1);
        if a.free.compare_exchange(head, tagged, AcqRel, Relaxed).is_ok() {
            return;
        }
    }
}

/// Place of this process in the family; the first call takes one.
pub fn me() -> Option<u32> {
    match PLACE.load(Relaxed) {
        0 => join(process::pid()),
        place => Some(place - 1),
    }
}

/// The bit of this process in a bitmap of holders.
pub fn bit() -> u64 {
    me().map_or(0, |place| 1 << place)
}

/// Removes this process from bitmaps of holders. The bit of [`UNKNOWN`] stays, since it may stand for other processes, too.
pub fn leave_holders(words: &[&AtomicU64]) {
    remove_holder(me(), words);
}

fn remove_holder(place: Option<u32>, words: &[&AtomicU64]) {
    if let Some(place) = place.filter(|place| *place != UNKNOWN) {
        words.iter().for_each(|word| {
            word.fetch_and(!(1 << place), SeqCst);
        });
    }
}

fn join(pid: u32) -> Option<u32> {
    let place = reserve(pid)?;
    match PLACE.compare_exchange(0, place + 1, AcqRel, Acquire) {
        Ok(_) => Some(place),
        Err(other) => {
            arena()?.family[place as usize].store(0, Release);
            Some(other - 1)
        }
    }
}

/// Takes a place for `pid`: a free one, or that of a process that has ended.
fn reserve(pid: u32) -> Option<u32> {
    let a = arena()?;
    (0..UNKNOWN as usize).find_map(|i| {
        let was = a.family[i].load(Acquire);
        let vacant = was == 0 || was != UNBORN && !process::process_exists(was);
        (vacant && a.family[i].compare_exchange(was, pid, AcqRel, Relaxed).is_ok()).then_some(i as u32)
    })
}

/// In place of a process number: a child that is being forked and has not stored its number yet.
const UNBORN: u32 = u32::MAX;
/// Shared by all holders that found no free place. Such holders always count as alive.
pub const UNKNOWN: u32 = FAMILY as u32 - 1;

/// Before fork(): takes a place for the child, which will hold everything that this process holds. None: nothing is shared.
pub fn reserve_for_child() -> Option<u32> {
    if ARENA.load(Acquire).is_null() {
        return None;
    }
    Some(reserve(UNBORN).unwrap_or(UNKNOWN))
}

/// After a failed fork().
pub fn cancel_child(place: Option<u32>) {
    if let (Some(p), Some(a)) = (place, arena()) {
        a.family[p as usize].store(0, Release);
    }
}

/// After fork(), in the child.
pub fn become_child(place: Option<u32>) {
    PLACE.store(place.map_or(0, |p| p + 1), Relaxed);
    if let (Some(p), Some(a)) = (place.filter(|p| *p != UNKNOWN), arena()) {
        a.family[p as usize].store(process::pid(), Release);
    }
}

/// Whether another living process holds the connection.
pub fn held_by_others(c: &Conn) -> bool {
    has_others(&c.holders)
}

/// Whether another living process has its bit in this word. Removes the bits of processes that have ended.
pub fn has_others(word: &AtomicU64) -> bool {
    // At UNKNOWN other processes may be registered besides this one, so its bit counts as another's.
    let mine = me().filter(|p| *p != UNKNOWN).map_or(0, |p| 1u64 << p);
    let mut others = word.load(Acquire) & !mine;
    while others != 0 {
        let place = others.trailing_zeros();
        others &= others - 1;
        let pid = arena().map_or(0, |a| a.family[place as usize].load(Acquire));
        if place == UNKNOWN || pid == UNBORN || pid != 0 && pid != process::pid() && process::process_exists(pid) {
            return true;
        }
        word.fetch_and(!(1 << place), AcqRel);
    }
    false
}

/// The record of a set with this number, which came from [`alloc_set`].
pub fn family_set(number: u32) -> Option<&'static FamilySet> {
    let index = number.checked_sub(1)?;
    arena()?.sets.get(index as usize)
}

/// A record for a set of ours: a free one, or that of processes that have ended. Returns its number, from 1 on.
pub fn alloc_set() -> Option<u32> {
    let (a, mine) = (arena()?, 1u64 << me()?);
    let free = |s: &FamilySet| s.holders.compare_exchange(0, mine, AcqRel, Relaxed).is_ok();
    let abandoned = |s: &FamilySet| s.holders.load(Acquire) & mine == 0 && !has_others(&s.holders) && free(s);
    let index = a.sets.iter().position(free).or_else(|| a.sets.iter().position(abandoned))?;
    let s = &a.sets[index];
    s.users.store(0, Relaxed);
    s.managers.store(0, Relaxed);
    s.is_shared.store(0, Release);
    Some(index as u32 + 1)
}

/// Whether another process of the family has attached the connection.
pub fn is_inherited(c: &Conn) -> bool {
    c.owner.load(Relaxed) != me().unwrap_or(u32::MAX)
}

/// The descriptor by which a call that began with `fd` reaches its connection now.
pub fn number(index: u32, fd: i32) -> i32 {
    let local = local(index);
    // The connection may be an orphan, or another of its descriptors may be the one in use.
    let moved = local.orphan.load(SeqCst) != 0 || fdtable::get(fd) != Kind::Conn(index);
    if moved { local.fd.load(Relaxed) as i32 } else { fd }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::thread;
    use std::vec::Vec;

    #[test]
    fn threads_never_have_the_same_record() {
        let all: Vec<u32> = thread::scope(|scope| {
            let work = || {
                let mut mine = Vec::new();
                for turn in 0..3000 {
                    let index = alloc().expect("a record");
                    conn(index).reset(0, 1);
                    if turn % 3 == 0 {
                        mine.push(index);
                    } else {
                        conn(index).phase.go(Event::Close);
                        free(index);
                    }
                }
                mine
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
            threads.into_iter().flat_map(|t| t.join().expect("no panic")).collect()
        });
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        for index in all {
            conn(index).phase.go(Event::Close);
            free(index);
        }
    }

    #[test]
    fn a_record_of_a_new_connection_knows_nothing_of_the_last() {
        let index = alloc().expect("a record");
        let c = conn(index);
        c.reset(0, 1);
        let generation = c.phase.generation();
        c.phase.go(Event::Keep);
        c.ops.store(9, Relaxed);
        c.phase.go(Event::Close);
        c.phase.go(Event::Free);
        c.reset(0, 1);
        assert_ne!(c.phase.generation(), generation);
        assert!(c.phase.phase().may_be_offered() && c.ops.load(Relaxed) == 0);
        c.phase.go(Event::Close);
        free(index);
    }

    #[test]
    fn a_record_that_is_given_back_twice_is_handed_out_once() {
        let index = alloc().expect("a record");
        conn(index).reset(0, 1);
        conn(index).phase.go(Event::Close);
        free(index);
        free(index);
        let all: Vec<u32> = (0..2).map(|_| alloc().expect("a record")).collect();
        assert_ne!(all[0], all[1]);
        for index in all {
            conn(index).reset(0, 1);
            conn(index).phase.go(Event::Close);
            free(index);
        }
    }

    #[test]
    fn processes_that_are_gone_hold_nothing() {
        me().expect("a place");
        let place = reserve(u32::MAX / 2).expect("a place"); // of a process that does not exist
        let word = AtomicU64::new(1 << place);
        assert!(!has_others(&word));
        assert_eq!(word.load(Relaxed), 0);
        assert!(has_others(&AtomicU64::new(1 << UNKNOWN)), "always taken to be alive");
    }

    #[test]
    fn one_of_several_processes_without_a_place_does_not_leave_for_the_others() {
        let word = AtomicU64::new(1 << UNKNOWN | 1 << 3);
        remove_holder(Some(UNKNOWN), &[&word]);
        assert_eq!(word.load(Relaxed), 1 << UNKNOWN | 1 << 3);
        remove_holder(Some(3), &[&word]);
        assert_eq!(word.load(Relaxed), 1 << UNKNOWN);
    }
}
