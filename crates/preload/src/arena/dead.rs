//! The end of processes of the family, of which nobody tells.
//!
//! A process that meets the bit of a dead process, or looks for a place, claims the dead one's place with its own number, removes the
//! bit from everything, and only then frees the place. Only one process can claim it, and no living process has the bit meanwhile, so
//! nothing that is in use is touched. If the claimant dies too, its number is that of a dead process, and the next one goes on.

use super::birth::{PLACES, UNBORN};
use super::memory::{Arena, FamilySet, arena};
use crate::record::{Conn, NOBODY};
use crate::{critical, lineage};
use core::sync::atomic::{AtomicU64, Ordering::*};
use sidestep_sys::{arch, clock, process};

/// Beside the number of a process that removes the bits of a dead one, whose place this was. Numbers are below 2^22.
pub(super) const REAPING: u32 = 1 << 31;

/// Whether what stands at a place is the number of a dead process. `mine` is the number of this one. A child that was made out of
/// sight, and does not know it yet, calls nobody dead: it may be in another PID namespace.
pub(super) fn is_dead(word: u32, mine: u32) -> bool {
    let pid = word & !REAPING;
    word != 0 && word & UNBORN == 0 && pid != mine && lineage::belongs_to(mine) && !process::process_exists(pid)
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
        vacate(a, (0..PLACES).filter(is_claimed).fold(0, |places, place| places | 1 << place));
    });
}

/// The process at this place, which `word` names, is dead.
#[cold]
pub(super) fn reap(a: &Arena, place: u32, word: u32, mine: u32) {
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
        let FamilySet { holders, users, managers, executed, .. } = s;
        clear(&[executed, managers, users, holders], places);
    }
    (0..PLACES).filter(|place| places >> place & 1 != 0).for_each(|place| a.family[place as usize].store(0, Release));
}

/// The next process at one of these places must not take what the last one attached for its own.
pub(super) fn disown(c: &Conn, places: u64) {
    let owner = c.owner.load(Relaxed);
    if owner < PLACES && places >> owner & 1 != 0 {
        let _ = c.owner.compare_exchange(owner, NOBODY, AcqRel, Relaxed);
    }
}

/// Least time between two searches for the dead while there is no free record, or no free place for this process.
const SEARCH_US: u64 = 100_000;

/// Removes everything that dead processes hold, unless that was done a moment ago.
#[cold]
pub fn search() {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let (now, next) = (arch::ticks(), NEXT.load(Relaxed));
    let later = now + clock::ticks_of_us(SEARCH_US);
    if now >= next && NEXT.compare_exchange(next, later, Relaxed, Relaxed).is_ok() {
        reap_all();
    }
}

/// Removes bits from bitmaps of holders.
pub(super) fn clear(words: &[&AtomicU64], bit: u64) {
    words.iter().for_each(|word| {
        word.fetch_and(!bit, SeqCst);
    });
}
