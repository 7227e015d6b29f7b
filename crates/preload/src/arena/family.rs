//! The processes of a family: each has a place, and by its place a bit in every bitmap of holders. All of them are in one PID
//! namespace (`pid_namespace`): elsewhere their numbers would mean nothing.

use super::birth::{Birth, PLACES, UNBORN};
use super::dead::{REAPING, clear, disown, is_dead, reap, reap_all, search};
use super::memory::{self, Arena, FamilySet, arena};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use sidestep_sys::{arch, clock, process};

/// Place of this process in the family, + 1; 0: none yet.
static PLACE: AtomicU32 = AtomicU32::new(0);

/// Place of this process in the family; the first call takes one.
pub fn me() -> Option<u32> {
    match PLACE.load(Relaxed) {
        0 => join(process::pid()),
        place => Some(place - 1),
    }
}

/// The bit of this process in a bitmap of holders; 0: it has no place.
pub fn bit() -> u64 {
    me().map_or(0, |place| 1 << place)
}

/// Removes this process from bitmaps of holders.
pub fn leave_holders(words: &[&AtomicU64]) {
    clear(words, bit());
}

fn join(pid: u32) -> Option<u32> {
    let a = arena()?;
    let place = reserve(a, |_| pid).or_else(|| {
        search();
        reserve(a, |_| pid)
    })?;
    match PLACE.compare_exchange(0, place + 1, AcqRel, Acquire) {
        Ok(_) => Some(place),
        Err(other) => {
            a.family[place as usize].store(0, Release);
            Some(other - 1)
        }
    }
}

/// Takes a free place, where `word` is to stand.
fn reserve(a: &Arena, word: impl Fn(u32) -> u32) -> Option<u32> {
    let is_taken = |place: &u32| a.family[*place as usize].compare_exchange(0, word(*place), AcqRel, Relaxed).is_ok();
    (0..PLACES).find(is_taken)
}

/// Before exec(): if nothing has the bit of this process any more, the process, which lives on, keeps no place.
pub fn leave_place() {
    let Some(place) = PLACE.load(Relaxed).checked_sub(1) else { return };
    let Some(a) = arena() else { return };
    if has_anything(a, place) {
        return;
    }
    PLACE.store(0, SeqCst);
    // Another thread may have begun a connection meanwhile.
    if has_anything(a, place) {
        let _ = PLACE.compare_exchange(0, place + 1, AcqRel, Relaxed);
        return;
    }
    a.conns().iter().for_each(|c| disown(c, 1 << place));
    a.family[place as usize].store(0, Release);
}

/// Whether a record has the bit of this place.
fn has_anything(a: &Arena, place: u32) -> bool {
    let bit = 1 << place;
    let in_set = |s: &FamilySet| [&s.holders, &s.users, &s.managers].iter().any(|word| word.load(SeqCst) & bit != 0);
    a.conns().iter().any(|c| c.holders.bits() & bit != 0) || a.sets().iter().any(in_set)
}

/// Before fork(): takes a place for the child, which will hold everything that this process holds. None: there is no free one.
pub fn reserve_for_child() -> Option<Birth> {
    let a = arena()?;
    let serial = a.births.fetch_add(1, Relaxed) % Birth::SERIALS;
    let at = |place: u32| Birth::of(serial * PLACES + place);
    let word = |place: u32| at(place).word();
    let place = reserve(a, word).or_else(|| {
        reap_all();
        reserve(a, word)
    });
    place.map(at)
}

/// The child that there is not, or that has left the family, holds nothing. No effect if it lives in the family.
pub fn cancel_child(birth: Birth) {
    if let Some(a) = arena() {
        reap(a, birth.place(), birth.word(), process::pid());
    }
}

/// After fork(), in the parent, which knows the child's number: if the child dies before it has stored the number, its relatives learn
/// that. No effect if the child was first.
pub fn child_is(birth: Birth, pid: u32) {
    if let Some(a) = arena() {
        enter(a, birth, pid);
    }
}

/// After fork(), in a child in another PID namespace: it holds nothing, and begins a family of its own.
pub fn leave_family() {
    memory::begin_anew();
    PLACE.store(0, Relaxed);
}

/// After fork(), in the child. False: the parent has taken the fork for a failed one, and the child holds nothing.
pub fn become_child(birth: Birth) -> bool {
    let is_there = arena().is_some_and(|a| enter(a, birth, process::pid()));
    PLACE.store(if is_there { birth.place() + 1 } else { 0 }, Relaxed);
    is_there
}

/// Parent and child both enter the child's number. False: the place is another birth's by now.
fn enter(a: &Arena, birth: Birth, pid: u32) -> bool {
    match a.family[birth.place() as usize].compare_exchange(birth.word(), pid, AcqRel, Acquire) {
        Ok(_) => true,
        Err(present) => present == pid,
    }
}

/// After fork(), in a child for which no place is reserved.
pub fn forget_place() {
    PLACE.store(0, Relaxed);
}

/// Number of the process at this place. None: it is not known yet, or there is none any more.
pub fn process_at(place: u32) -> Option<u32> {
    let word = arena()?.family[place as usize].load(Acquire);
    (word != 0 && word & (UNBORN | REAPING) == 0).then_some(word)
}

/// Whether another living process has its bit in this word.
pub fn has_others(word: &AtomicU64) -> bool {
    any_other(word.load(Acquire), &mut 0)
}

/// Least time between two checks of whether relatives still hold a thing.
const HELD_US: u64 = 10_000;

/// As [`any_other`], according to a recent check. `held_until`: time (ticks) until which its answer counts.
pub fn any_other_lately(bits: u64, held_until: &AtomicU64) -> bool {
    if bits & !bit() == 0 {
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
    let mut others = bits & !bit();
    if others == 0 || others & *alive != 0 {
        return others != 0;
    }
    let Some(a) = arena() else { return false };
    let mine = process::pid();
    while others != 0 {
        let place = others.trailing_zeros();
        others &= others - 1;
        let word = a.family[place as usize].load(Acquire);
        if word & UNBORN != 0 {
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
    use crate::record::NOBODY;

    /// No process has this number.
    const NO_PROCESS: u32 = u32::MAX / 4;

    /// Place of a child that has been forked and runs.
    pub fn child() -> u32 {
        reserve_for_child().expect("a place").place()
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
        let (index, birth) = (begun(), reserve_for_child().expect("a place"));
        share_with_child(index, birth.place());
        assert!(held_by_others(conn(index)));
        cancel_child(birth);
        assert_eq!(conn(index).holders.bits(), bit());
        let_go(index);
    }

    /// A parent that does not learn whether its fork has failed may take a child that is slow for one that is not there.
    #[test]
    fn a_place_is_that_of_the_child_for_which_it_was_reserved() {
        let (index, a) = (begun(), arena().expect("an arena"));
        let late = reserve_for_child().expect("a place");
        let next = Birth::of(late.number() + PLACES);
        a.family[next.place() as usize].store(next.word(), Release);
        share_with_child(index, next.place());
        assert!(!enter(a, late, 1));
        cancel_child(late);
        assert!(enter(a, next, 1));
        cancel_child(next);
        assert_eq!(conn(index).holders.bits(), 1 << next.place() | bit(), "it lives");
        kill(next.place());
        assert!(!held_by_others(conn(index)));
        let_go(index);
    }

    #[test]
    fn a_child_that_dies_before_it_has_entered_its_number_holds_nothing() {
        let (index, birth) = (begun(), reserve_for_child().expect("a place"));
        share_with_child(index, birth.place());
        assert!(held_by_others(conn(index)), "it may live");
        child_is(birth, NO_PROCESS);
        assert!(!held_by_others(conn(index)));
        assert_eq!(conn(index).holders.bits(), bit());
        let_go(index);
    }

    #[test]
    fn parent_and_child_enter_the_same_number() {
        let (a, birth) = (arena().expect("an arena"), reserve_for_child().expect("a place"));
        child_is(birth, 1);
        assert!(enter(a, birth, 1), "the parent was first");
        child_is(birth, NO_PROCESS);
        assert_eq!(a.family[birth.place() as usize].load(Relaxed), 1, "the child was first");
        kill(birth.place());
        reap_all();
    }

    #[test]
    fn a_process_that_holds_something_keeps_its_place() {
        let (index, a) = (begun(), arena().expect("an arena"));
        let place = me().expect("a place");
        leave_place();
        assert_eq!((me(), a.family[place as usize].load(Relaxed)), (Some(place), process::pid()));
        let other = child();
        assert!(!has_anything(a, other));
        share_with_child(index, other);
        assert!(has_anything(a, other));
        kill(other);
        reap_all();
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
}
