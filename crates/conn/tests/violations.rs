//! A peer changes the reader's own word. Waits look at that word for bytes in the ring; a reader that found no bytes there
//! would look for ever.
#![cfg(not(loom))]

mod words;

use sidestep_abi::link::FROZEN;
use sidestep_abi::sync::Ordering::Relaxed;
use sidestep_conn::{PeerViolation, Read, Rx};
use words::{SIZE, Words};

#[test]
fn a_head_that_somebody_else_moved_is_a_violation() {
    for head in [0, 99, 101, FROZEN - 1] {
        for bit in [0, FROZEN] {
            let words = Words::new();
            let mut rx = words.with_unread(0).1;
            words.reader.head.store(head | bit, Relaxed);
            assert_eq!(rx.next(words.half()), Err(PeerViolation::Head), "{head:#x} {bit:#x}");
        }
    }
}

#[test]
fn a_head_that_is_thawed_between_stretches_is_a_violation() {
    let words = Words::new();
    let mut fresh = Rx::native(100);
    words.reader.head.store(100, Relaxed);
    assert_eq!(fresh.next(words.half()), Err(PeerViolation::Head), "before any stretch");
    let words = Words::new();
    let mut rx = words.with_unread(0).1;
    words.reader.head.fetch_or(FROZEN, Relaxed);
    assert_eq!(rx.next(words.half()), Ok(Read::Kernel(u64::MAX)));
    words.reader.head.fetch_and(!FROZEN, Relaxed);
    assert_eq!(rx.next(words.half()), Err(PeerViolation::Head), "after one");
}

#[test]
fn nobody_waits_for_more_than_a_ring_holds() {
    for (tail, coming) in [(105, 5), (100 + SIZE as u64, SIZE as u64), (101 + SIZE as u64, 0), (99, 0), (u64::MAX, 0)] {
        let words = Words::new();
        let mut rx = words.with_unread(5).1;
        words.writer.tail.store(tail, Relaxed);
        words.reader.head.fetch_or(FROZEN, Relaxed);
        assert_eq!(rx.next(words.half()), Ok(Read::Kernel(u64::MAX)));
        assert_eq!(rx.on_its_way(), coming, "{tail:#x}");
    }
}
