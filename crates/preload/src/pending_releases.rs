//! What the broker could not be told because its socket was full: slots given back, offers withdrawn.

use crate::{arena, broker, link};
use core::sync::atomic::{AtomicU64, Ordering::*};

/// Records whose offer is to be withdrawn. They are closed, and free once that is told: until then they keep the
/// number by which the broker knows the offer.
static OFFERS: [AtomicU64; arena::CONNS / 64] = [const { AtomicU64::new(0) }; arena::CONNS / 64];

/// The record stays until its offer has been withdrawn.
#[cold]
pub fn keep(index: u32) {
    OFFERS[index as usize / 64].fetch_or(1 << (index % 64), AcqRel);
    broker::owe();
}

/// Tells what it can; what does not fit is owed on. Callers hold the broker's lock.
#[cold]
pub fn tell() {
    broker::claim_owes();
    if !(link::all().all(link::Link::tell_owed) && tell_offers()) {
        broker::owe();
    }
}

fn tell_offers() -> bool {
    OFFERS.iter().enumerate().all(|(at, word)| {
        broker::tell_each(word, |bit| {
            let index = (at * 64) as u32 + bit;
            let told = broker::withdraw(index, arena::conn(index));
            if told {
                arena::free(index);
            }
            told
        })
    })
}

/// The broker is gone, and with it what it was to be told.
pub fn cancel() {
    if broker::claim_owes() {
        link::all().for_each(link::Link::owe_nothing);
        for (at, word) in OFFERS.iter().enumerate() {
            broker::tell_each(word, |bit| {
                arena::free((at * 64) as u32 + bit);
                true
            });
        }
    }
}

/// In a forked child: all of it is the parent's.
pub fn reset_in_child() {
    if broker::claim_owes() {
        OFFERS.iter().for_each(|word| word.store(0, Relaxed));
    }
}
