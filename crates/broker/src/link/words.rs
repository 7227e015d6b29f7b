//! What the broker reads and writes in the words that a link's two sides share while a connection lives.

use super::Link;
use sidestep_abi::link::{FROZEN, PLACES};
use sidestep_ring::bell;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;

impl Link {
    /// Ends the ring of the direction that `reader` reads; false if it had ended already.
    pub fn freeze(&self, slot: usize, reader: usize) -> bool {
        let words = self.mem.slot(slot);
        // SYNC(frozen): the writer of this direction sees it at its next look at `head`.
        let before = words.reader[1 - reader].head.fetch_or(FROZEN, SeqCst);
        if before & FROZEN != 0 {
            return false;
        }
        words.side[reader].froze.fetch_add(1, SeqCst);
        true
    }

    /// Has both writers look at this connection's hold (`Half::hint_freeze`), at their next call or wait.
    pub fn hint(&self, slot: usize) {
        for side in &self.mem.slot(slot).side {
            side.froze.fetch_add(1, SeqCst);
        }
    }

    /// Whether some direction is carried by a ring, as far as the shared words tell.
    pub fn is_by_ring(&self, slot: usize) -> bool {
        let words = self.mem.slot(slot);
        (0..2).any(|direction| {
            let writer = &words.writer[direction];
            let (epoch, complete) = (writer.epoch.load(Relaxed), writer.complete.load(Relaxed));
            epoch != complete && words.reader[direction].head.load(Relaxed) & FROZEN == 0
        })
    }

    /// Tells `side` to look at `slot`: sets its ready bits, and returns the places whose eventfd is to be rung.
    /// `all` are the places that the side has at all; they are used if it names none for this connection. Who sleeps is
    /// left marked as asleep: should its eventfd not take our ring, the peer's next one still does.
    pub fn mark_ready(&self, slot: usize, side: usize, all: u64) -> u64 {
        let wanted = self.mem.slot(slot).side[side].bells.load(SeqCst);
        let places = if wanted & all != 0 { wanted & all } else { all };
        let mut asleep = 0;
        for place in bits(places) {
            let bell = &self.mem.side(side).bells[place];
            // SYNC(bell): bits first, then the flag; the sleeper raises the flag first, then looks at the bits.
            fence(SeqCst);
            bell::mark(bell, slot, || ());
            if bell.asleep.load(SeqCst) != 0 {
                asleep |= 1 << place;
            }
        }
        asleep
    }
}

/// The numbers of the bits set.
pub fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = mask.trailing_zeros() as usize;
        mask &= mask.wrapping_sub(1);
        (bit < PLACES).then_some(bit)
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{connection, link};
    use super::*;

    #[test]
    fn freezing_keeps_the_position_and_counts_once() {
        let mut link = link();
        let slot = link.take(connection()).expect("free");
        link.mem.slot(slot).reader[0].head.store(1234, Relaxed);
        // Direction 0 is read by side 1.
        assert!(link.freeze(slot, 1));
        assert!(!link.freeze(slot, 1), "frozen already");
        let words = link.mem.slot(slot);
        assert_eq!(words.reader[0].head.load(Relaxed), FROZEN | 1234);
        assert_eq!((words.side[0].froze.load(Relaxed), words.side[1].froze.load(Relaxed)), (0, 1));
    }

    #[test]
    fn only_sleeping_places_are_rung_but_all_named_ones_are_marked() {
        let mut link = link();
        let slot = (0..=70).filter_map(|_| link.take(connection())).last().expect("free");
        assert_eq!(slot, 70);
        link.mem.slot(slot).side[1].bells.store(1 << 3 | 1 << 5 | 1 << 60, Relaxed);
        link.mem.side(1).bells[5].asleep.store(1, Relaxed);
        let all = 1 << 3 | 1 << 5;
        assert_eq!(link.mark_ready(slot, 1, all), 1 << 5, "3 is awake, 60 does not exist");
        for place in [3, 5] {
            let bell = &link.mem.side(1).bells[place];
            assert!(bell::is_marked(bell, slot));
        }
        assert_eq!(link.mem.side(1).bells[5].asleep.swap(0, Relaxed), 1, "the sleeper itself says that it is awake");
        assert!(!bell::is_marked(&link.mem.side(1).bells[60], slot));
        link.mem.slot(slot).side[1].bells.store(0, Relaxed);
        link.mem.side(1).bells[3].asleep.store(1, Relaxed);
        assert_eq!(link.mark_ready(slot, 1, all), 1 << 3, "no place named: all of them");
    }
}
