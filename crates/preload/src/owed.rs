//! What the broker could not be told because its socket was full: slots given back, offers withdrawn. It is told
//! later, with our next call; forgotten, they would be taken for as long as we live.

use crate::{arena, link, member};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

/// Whether there may be anything.
static ANY: AtomicBool = AtomicBool::new(false);
/// Records whose offer is to be withdrawn. They are closed, and free once that is told: until then they keep the
/// number by which the broker knows the offer.
static OFFERS: [AtomicU64; arena::CONNS / 64] = [const { AtomicU64::new(0) }; arena::CONNS / 64];

#[inline]
pub fn any() -> bool {
    ANY.load(SeqCst)
}

/// Something is to be told later.
#[cold]
pub fn note() {
    ANY.store(true, SeqCst);
    member::look_again();
}

/// The record stays until its offer has been withdrawn.
#[cold]
pub fn keep(index: u32) {
    OFFERS[index as usize / 64].fetch_or(1 << (index % 64), AcqRel);
    note();
}

/// Tells what it can; what does not fit is noted again. Callers exclude each other (member lock).
#[cold]
pub fn tell() {
    ANY.store(false, SeqCst);
    if !(link::all().all(link::Link::tell_owed) && tell_offers()) {
        note();
    }
}

fn tell_offers() -> bool {
    OFFERS.iter().enumerate().all(|(at, word)| {
        drain(word, |bit| {
            let index = (at * 64) as u32 + bit;
            let told = member::tell_withdrawn(index, arena::conn(index));
            if told {
                arena::free(index);
            }
            told
        })
    })
}

/// Takes each bit for which `told` is true out of the word. False: one was not.
pub fn drain(word: &AtomicU64, mut told: impl FnMut(u32) -> bool) -> bool {
    let mut bits = word.swap(0, AcqRel);
    while bits != 0 {
        if !told(bits.trailing_zeros()) {
            word.fetch_or(bits, AcqRel);
            return false;
        }
        bits &= bits - 1;
    }
    true
}

/// The broker is gone, and with it what it was to be told.
pub fn cancel() {
    if ANY.swap(false, SeqCst) {
        link::all().for_each(link::Link::owe_nothing);
        for (at, word) in OFFERS.iter().enumerate() {
            drain(word, |bit| {
                arena::free((at * 64) as u32 + bit);
                true
            });
        }
    }
}

/// In a forked child: all of it is the parent's.
pub fn forget() {
    if ANY.swap(false, SeqCst) {
        OFFERS.iter().for_each(|word| word.store(0, Relaxed));
    }
}
