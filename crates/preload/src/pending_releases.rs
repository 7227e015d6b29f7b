//! Messages to the broker that did not fit into its socket: slots to release, offers to withdraw.

use crate::{arena, broker, link};
use core::sync::atomic::{AtomicU64, Ordering::*};

/// Records whose offer is to be withdrawn. Their connections are closed. This process holds each record until the broker has been
/// told, since the record's number names the offer.
static OFFERS: [AtomicU64; arena::CONNS / 64] = [const { AtomicU64::new(0) }; arena::CONNS / 64];

/// Keeps the record until its offer has been withdrawn.
#[cold]
pub fn keep(index: u32) {
    OFFERS[index as usize / 64].fetch_or(1 << (index % 64), AcqRel);
    broker::owe();
}

/// Sends as many of the messages as the socket takes. The caller holds the broker lock.
#[cold]
pub fn tell() {
    broker::claim_owes();
    if !(link::all().all(link::Link::report_releases) && tell_offers()) {
        broker::owe();
    }
}

fn tell_offers() -> bool {
    OFFERS.iter().enumerate().all(|(at, word)| {
        broker::tell_each(word, |bit| {
            let index = (at * 64) as u32 + bit;
            let told = broker::withdraw(index, arena::conn(index));
            if told {
                arena::let_go(index);
            }
            told
        })
    })
}

/// The broker is gone, so the messages are dropped.
pub fn cancel() {
    if broker::claim_owes() {
        link::all().for_each(link::Link::forget_releases);
        for (at, word) in OFFERS.iter().enumerate() {
            broker::tell_each(word, |bit| {
                arena::let_go((at * 64) as u32 + bit);
                true
            });
        }
    }
}

/// In a forked child: the messages are the parent's.
pub fn reset_in_child() {
    broker::claim_owes();
    // Another thread of the parent may have been about to say that there is one.
    OFFERS.iter().filter(|word| word.load(Relaxed) != 0).for_each(|word| word.store(0, Relaxed));
}
