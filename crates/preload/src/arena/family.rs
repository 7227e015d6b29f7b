//! The processes of a family: each has a place, and by its place a bit in every bitmap of holders.
//!
//! Nobody tells the family of a death. A process that meets the bit of a dead process, or looks for a place, claims the dead one's
//! place with its own number, removes the bit from everything, and only then frees the place. Only one process can claim it, and
//! no living process has the bit meanwhile, so nothing that is in use is touched. If the claimant dies too, its number is that of a
//! dead process, and the next one goes on. All processes of a family are in one PID namespace (`pid_namespace`): elsewhere their
//! numbers would mean nothing.

use super::memory::{self, Arena, FAMILY, FamilySet, arena, exists};
use crate::record::{Conn, NOBODY};
use crate::{critical, lineage};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use sidestep_sys::{arch, clock, process};

/// Place of this process in the family, + 1; 0: none yet.
static PLACE: AtomicU32 = AtomicU32::new(0);

/// In place of a process number: a child that is being forked and has not stored its number yet.
const UNBORN: u32 = u32::MAX;
/// Beside the number of a process that removes the bits of a dead one, whose place this was. Numbers are below 2^22.
const REAPING: u32 = 1 << 31;
/// Shared by all holders that found no free place. Such holders always count as alive, and their bit is never removed.
pub const UNKNOWN: u32 = FAMILY as u32 - 1;

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

/// The bit of this process that is no other's; 0: there is none.
pub fn own_bit() -> u64 {
    me().filter(|place| *place != UNKNOWN).map_or(0, |place| 1 << place)
}

/// Removes this process from bitmaps of holders. The bit of [`UNKNOWN`] stays, since it may stand for other processes, too.
pub fn leave_holders(words: &[&AtomicU64]) {
    clear(words, own_bit());
}

fn clear(words: &[&AtomicU64], bit: u64) {
    words.iter().for_each(|word| {
        word.fetch_and(!bit, SeqCst);
    });
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

/// Takes a place for `pid`.
fn reserve(pid: u32) -> Option<u32> {
    let a = arena()?;
    let free = |place: &u32| a.family[*place as usize].compare_exchange(0, pid, AcqRel, Relaxed).is_ok();
    (0..UNKNOWN).find(free).or_else(|| {
        reap_all();
        (0..UNKNOWN).find(free)
    })
}

/// Whether what stands at a place is the number of a dead process. `mine` is the number of this one. A child that was made out of sight, and does not know it yet,
/// calls nobody dead: it may be in another PID namespace.
fn is_dead(word: u32, mine: u32) -> bool {
    let pid = word & !REAPING;
    word != 0 && word != UNBORN && pid != mine && lineage::belongs_to(mine) && !process::process_exists(pid)
}

/// Removes everything that dead processes hold, and frees their places.
#[cold]
pub fn reap_all() {
    let Some(a) = arena() else { return };
    let mine = process::pid();
    // A handler of the program that jumps out would leave places claimed for as long as this process lives.
    critical::section(|| {
        let is_claimed = |place: &u32| {
            let word = a.family[*place as usize].load(Acquire);
            is_dead(word, mine) && claim(a, *place, word, mine)
        };
        vacate(a, (0..UNKNOWN).filter(is_claimed).fold(0, |places, place| places | 1 << place));
    });
}

/// The process at this place, which `word` names, is dead.
#[cold]
fn reap(a: &Arena, place: u32, word: u32, mine: u32) {
    critical::section(|| {
        if claim(a, place, word, mine) {
            vacate(a, 1 << place);
        }
    });
}

/// This process, with the number `mine`, is to free the place. False: another one was first.
fn claim(a: &Arena, place: u32, word: u32, mine: u32) -> bool {
    a.family[place as usize].compare_exchange(word, REAPING | mine, AcqRel, Relaxed).is_ok()
}

/// Removes the bits of places that no living process has, in one pass over everything, and frees the places.
fn vacate(a: &Arena, places: u64) {
    if places == 0 {
        return;
    }
    for (index, c) in a.conns().iter().enumerate() {
        disown(c, places);
        if c.holders.bits() & places != 0 && c.holders.remove(places) {
            // The slot and the offer were the dead process's: the broker has learnt of its end.
            c.unlock_for_the_dead();
            a.end(index as u32);
        }
    }
    for s in a.sets() {
        let FamilySet { holders, users, managers, .. } = s;
        clear(&[managers, users, holders], places);
    }
    (0..UNKNOWN).filter(|place| places >> place & 1 != 0).for_each(|place| a.family[place as usize].store(0, Release));
}

/// The next process at one of these places must not take what the last one attached for its own.
fn disown(c: &Conn, places: u64) {
    let owner = c.owner.load(Relaxed);
    if owner < FAMILY as u32 && places >> owner & 1 != 0 {
        let _ = c.owner.compare_exchange(owner, NOBODY, AcqRel, Relaxed);
    }
}

/// Before fork(): takes a place for the child, which will hold everything that this process holds. None: nothing is shared.
pub fn reserve_for_child() -> Option<u32> {
    exists().then(|| reserve(UNBORN).unwrap_or(UNKNOWN))
}

/// After a failed fork(): the child that there is not holds nothing.
pub fn cancel_child(place: u32) {
    if let Some(a) = arena().filter(|_| place != UNKNOWN) {
        critical::section(|| vacate(a, 1 << place));
    }
}

/// After fork(), in a child in another PID namespace: it holds nothing, and begins a family of its own.
pub fn leave_family() {
    memory::begin_anew();
    PLACE.store(0, Relaxed);
}

/// After fork(), in the child.
pub fn become_child(place: Option<u32>) {
    PLACE.store(place.map_or(0, |p| p + 1), Relaxed);
    if let (Some(p), Some(a)) = (place.filter(|p| *p != UNKNOWN), arena()) {
        a.family[p as usize].store(process::pid(), Release);
    }
}

/// Whether another living process has its bit in this word.
pub fn has_others(word: &AtomicU64) -> bool {
    any_other(word.load(Acquire), &mut 0)
}

/// Least time between two checks of whether relatives still hold a thing.
const HELD_US: u64 = 10_000;

/// As [`any_other`], according to a recent check. `held_until`: time (ticks) until which its answer counts.
pub fn any_other_lately(bits: u64, held_until: &AtomicU64) -> bool {
    if bits & !own_bit() == 0 {
        return false;
    }
    let now = arch::ticks();
    if now < held_until.load(Relaxed) {
        return true;
    }
    let held = any_other(bits, &mut 0);
    held_until.store(if held { now + clock::ticks_of_us(HELD_US) } else { 0 }, Relaxed);
    held
}

/// Whether one of these bits is that of another living process. Removes what dead ones hold. `alive`: the bits of those that were
/// found alive during this call of the program, so that the kernel is asked once for each.
pub fn any_other(bits: u64, alive: &mut u64) -> bool {
    // At UNKNOWN other processes may be registered besides this one, so its bit counts as another's.
    let mut others = bits & !own_bit();
    if others == 0 || others & *alive != 0 {
        return others != 0;
    }
    let Some(a) = arena() else { return false };
    let mine = process::pid();
    while others != 0 {
        let place = others.trailing_zeros();
        others &= others - 1;
        let word = a.family[place as usize].load(Acquire);
        if place == UNKNOWN || word == UNBORN {
            return true;
        }
        if is_dead(word, mine) {
            reap(a, place, word, mine);
        } else if word & REAPING == 0 && word != 0 && word != mine {
            *alive |= 1 << place;
            return true;
        }
    }
    false
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::arena::{alloc, conn, held_by_others, let_go, local, share_with_child};

    /// No process has this number.
    const NO_PROCESS: u32 = u32::MAX / 4;

    /// Place of a child that has been forked and runs.
    pub fn child() -> u32 {
        let place = reserve_for_child().expect("an arena");
        assert_ne!(place, UNKNOWN);
        place
    }

    /// The child at this place ends without a word.
    pub fn kill(place: u32) {
        arena().expect("an arena").family[place as usize].store(NO_PROCESS, Release);
    }

    /// A record of a connection that this process holds.
    pub fn begun() -> u32 {
        let index = alloc().expect("a record");
        conn(index).reset(0, bit());
        local(index).generation.store(conn(index).phase.generation(), Relaxed);
        index
    }

    #[test]
    fn processes_that_are_gone_hold_nothing() {
        me().expect("a place");
        let place = child();
        let word = AtomicU64::new(1 << place);
        assert!(has_others(&word), "a child that is being forked");
        kill(place);
        assert!(!has_others(&word));
        assert!(has_others(&AtomicU64::new(1 << UNKNOWN)), "always taken to be alive");
    }

    #[test]
    fn one_that_was_found_alive_is_not_asked_for_again() {
        me().expect("a place");
        clock::calibrate();
        let place = child();
        // Process 1 lives as long as any other.
        arena().expect("an arena").family[place as usize].store(1, Release);
        let mut alive = 0;
        assert!(any_other(1 << place, &mut alive));
        assert_eq!(alive, 1 << place);
        let held_until = AtomicU64::new(0);
        assert!(any_other_lately(1 << place, &held_until));
        kill(place);
        assert!(any_other(1 << place, &mut alive) && any_other_lately(1 << place, &held_until));
        assert!(!any_other_lately(bit(), &held_until), "the bit is gone, so nothing is to be asked");
        held_until.store(0, Relaxed);
        assert!(!any_other_lately(1 << place, &held_until));
    }

    #[test]
    fn the_death_of_the_last_holder_ends_the_record() {
        let (index, place) = (begun(), child());
        let c = conn(index);
        share_with_child(index, place);
        let_go(index);
        assert!(!c.phase.is(sidestep_conn::Phase::Free), "the child holds it");
        kill(place);
        reap_all();
        assert_eq!(c.holders.bits() & 1 << place, 0);
        assert_ne!(c.owner.load(Relaxed), place);
    }

    #[test]
    fn several_of_the_dead_leave_at_once() {
        let (shared, theirs, dead) = (begun(), begun(), [child(), child(), child()]);
        dead.into_iter().for_each(|place| share_with_child(shared, place));
        dead[1..].iter().for_each(|place| share_with_child(theirs, *place));
        conn(shared).owner.store(dead[1], Relaxed);
        let_go(theirs);
        let generation = conn(theirs).phase.generation();
        dead.into_iter().for_each(kill);
        reap_all();
        assert_eq!((conn(shared).holders.bits(), conn(shared).owner.load(Relaxed)), (bit(), NOBODY));
        let is_ended = conn(theirs).phase.is(sidestep_conn::Phase::Free);
        assert!(is_ended || conn(theirs).phase.generation() != generation, "given back, and perhaps in use again");
        let_go(shared);
    }

    #[test]
    fn a_place_that_is_given_anew_has_nothing_of_the_last_process() {
        let (index, place) = (begun(), child());
        let c = conn(index);
        let (a, generation) = (arena().expect("an arena"), c.phase.generation());
        share_with_child(index, place);
        c.owner.store(place, Relaxed);
        let sets = [&a.sets[4000], &a.sets[4001]];
        a.fresh_sets.fetch_max(4002, AcqRel);
        for s in sets {
            clear(&[&s.holders, &s.users, &s.managers], u64::MAX);
            for word in [&s.holders, &s.users, &s.managers] {
                word.fetch_or(1 << place | bit(), SeqCst);
            }
        }
        kill(place);
        reap_all();
        assert_eq!((c.holders.bits(), c.owner.load(Relaxed)), (bit(), NOBODY));
        assert_eq!(c.phase.generation(), generation, "the connection lives on with its other holder");
        for s in sets {
            assert!([&s.holders, &s.users, &s.managers].iter().all(|word| word.load(Relaxed) == bit()));
            leave_holders(&[&s.holders, &s.users, &s.managers]);
        }
        let_go(index);
    }

    #[test]
    fn a_child_that_was_not_forked_holds_nothing() {
        let (index, place) = (begun(), child());
        share_with_child(index, place);
        assert!(held_by_others(conn(index)));
        cancel_child(place);
        assert_eq!(conn(index).holders.bits(), bit());
        let_go(index);
    }

    #[test]
    fn the_work_of_a_dead_reaper_is_done_by_the_next() {
        let (index, place) = (begun(), child());
        share_with_child(index, place);
        arena().expect("an arena").family[place as usize].store(REAPING | NO_PROCESS, Release);
        assert!(!held_by_others(conn(index)));
        assert_eq!(conn(index).holders.bits(), bit());
        let_go(index);
    }

    #[test]
    fn one_of_several_processes_without_a_place_does_not_leave_for_the_others() {
        let index = begun();
        conn(index).holders.begin(1 << UNKNOWN | bit());
        let_go(index);
        assert_eq!(conn(index).holders.bits(), 1 << UNKNOWN);
        assert!(conn(index).holders.remove(1 << UNKNOWN));
        arena().expect("an arena").end(index);
    }
}
