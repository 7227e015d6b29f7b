//! Processes that leave a record, and others that come to it.

use crate::engine::{Arc, explore, thread};
use sidestep_conn::Holders;
use sidestep_conn::phase::{Cell, Event};

const MINE: u64 = 1;
const OTHER: u64 = 1 << 1;
const DEAD: u64 = 1 << 2;

/// A record as the arena has it.
#[derive(Default)]
struct Record {
    holders: Holders,
    phase: Cell,
}

impl Record {
    /// A record of an open connection that these processes hold.
    fn held_by(bits: u64) -> Arc<Record> {
        let record = Record::default();
        record.begin(bits);
        Arc::new(record)
    }

    /// True: this was the last holder, which has ended the record.
    fn leave(&self, bit: u64) -> bool {
        let is_last = self.holders.remove(bit);
        if is_last {
            self.phase.go(Event::Close).expect("in use");
            self.phase.go(Event::Free).expect("closed");
        }
        is_last
    }

    /// The record's next connection.
    fn begin(&self, bit: u64) {
        self.phase.go(Event::Open).expect("a free record");
        self.holders.begin(bit);
    }
}

/// Two holders close, while a third process removes the bit of a dead one.
///
/// Catches: `Holders::remove` that looks, and then stores; a holder that ends the record because it saw no other before it left.
#[test]
fn one_of_the_leaving_ends_the_record() {
    explore("one_of_the_leaving_ends_the_record", 5, || {
        let record = Record::held_by(MINE | OTHER | DEAD);
        let leaving = [MINE, OTHER].map(|bit| {
            let record = record.clone();
            thread::spawn(move || record.leave(bit))
        });
        let swept = record.leave(DEAD);
        let ended = leaving.map(|thread| thread.join().unwrap());
        assert_eq!([swept, ended[0], ended[1]].iter().filter(|is_last| **is_last).count(), 1);
        assert_eq!(record.holders.bits(), 0);
    });
}

/// One thread forks while another closes, and the record becomes the next connection's of another process.
///
/// Catches: `Holders::add_beside` that looks, and then adds.
#[test]
fn a_child_holds_only_what_its_parent_holds() {
    explore("a_child_holds_only_what_its_parent_holds", 5, || {
        const CHILD: u64 = DEAD;
        let record = Record::held_by(MINE);
        let closing = {
            let record = record.clone();
            thread::spawn(move || {
                let is_last = record.leave(MINE);
                if is_last {
                    record.begin(OTHER);
                }
                is_last
            })
        };
        let is_shared = record.holders.add_beside(MINE, CHILD);
        let is_ended = closing.join().unwrap();
        assert_ne!(is_shared, is_ended);
        assert_eq!(record.holders.bits(), if is_shared { CHILD } else { OTHER });
    });
}

/// A process comes back after an exec() that has failed, while the other holder leaves, and the record becomes the next
/// connection's of that one.
///
/// Catches: a generation that is looked at before the bit is added; `Holders::add_late` to a record that nobody holds; a record
/// that has holders before its new generation.
#[test]
fn who_comes_back_finds_the_same_connection_or_none() {
    explore("who_comes_back_finds_the_same_connection_or_none", 5, || {
        let record = Record::held_by(MINE | OTHER);
        let generation = record.phase.generation();
        assert!(record.holders.remove_unless_last(MINE));
        assert!(!record.holders.remove_unless_last(OTHER));
        let closing = {
            let record = record.clone();
            thread::spawn(move || {
                let is_last = record.leave(OTHER);
                if is_last {
                    record.begin(OTHER);
                }
                is_last
            })
        };
        let is_back = record.holders.add_late(MINE) && {
            let is_same = record.phase.generation() == generation;
            is_same || {
                record.leave(MINE);
                false
            }
        };
        let is_ended = closing.join().unwrap();
        assert_ne!(is_back, is_ended, "the connection has ended under a holder, or lives on with none");
        assert_eq!(record.holders.bits(), if is_back { MINE } else { OTHER });
    });
}
