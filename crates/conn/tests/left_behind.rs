//! A reader that has left the ring sends the writer's bytes in its place, also if the writer knows that: it may have found no space in the
//! kernel's buffers, and make no call from then on.
#![cfg(not(loom))]

use sidestep_abi::link::Slot;
use sidestep_conn::{Read, Rx, Tx};
use sidestep_ring::{Half, slot};

#[test]
fn what_a_writer_has_not_sent_that_knows_of_the_end_is_found() {
    let words = Slot::default();
    slot::reset(&words);
    let half = Half::of(&words, 0, 4096);
    half.set_ready();
    let (mut tx, mut rx) = (Tx::native(0), Rx::native(0));
    assert_eq!(tx.begin(half), Ok(true));
    tx.put_ring(half, 100).expect("no violation");
    assert_eq!(rx.next(half), Ok(Read::Ring(100)));
    rx.took_ring(half, 30).expect("no violation");
    rx.freeze(half).expect("no violation");
    half.hint_freeze();
    tx.poll(half).expect("no violation");
    assert!(tx.has_unsent());

    assert_eq!(rx.unsent(half).map(|(_, _, len)| len), Ok(0), "a writer that knows needs no help of a peer");
    assert_eq!(rx.left_behind(half), Ok((30, 30, 70)));
    assert!(half.claim_sending());
    half.set_sent_to(80);
    half.has_sent();
    assert_eq!(rx.left_behind(half), Ok((80, 80, 20)));
    assert!(half.claim_sending());
    tx.heed_deputy(half).expect("no violation");
    half.has_sent();
    assert_eq!(tx.unread(), 20, "the writer goes on behind what was sent for it");
}

#[test]
fn nothing_is_left_behind_in_a_ring_that_is_read() {
    let words = Slot::default();
    slot::reset(&words);
    let half = Half::of(&words, 0, 4096);
    half.set_ready();
    let (mut tx, mut rx) = (Tx::native(0), Rx::native(0));
    assert_eq!(rx.left_behind(half), Ok((0, 0, 0)), "no stretch has begun");
    assert_eq!(tx.begin(half), Ok(true));
    tx.put_ring(half, 100).expect("no violation");
    assert_eq!(rx.left_behind(half).map(|(_, _, len)| len), Ok(0), "a stretch is announced");
    assert_eq!(rx.next(half), Ok(Read::Ring(100)));
    assert_eq!(rx.left_behind(half).map(|(_, _, len)| len), Ok(0));
}

/// The reader is killed before the writer looks; another process refuses what may have begun.
#[test]
fn a_stretch_that_a_killed_reader_has_left_stays_left_where_it_was() {
    let words = Slot::default();
    slot::reset(&words);
    let half = Half::of(&words, 0, 4096);
    assert!(Rx::found_left(half).is_none(), "no stretch has begun");
    half.set_ready();
    let (mut tx, mut rx) = (Tx::native(7), Rx::native(7));
    assert_eq!(tx.begin(half), Ok(true));
    assert!(Rx::found_left(half).is_none(), "it is not entered");
    tx.put_ring(half, 100).expect("no violation");
    assert_eq!(rx.next(half), Ok(Read::Ring(100)));
    rx.took_ring(half, 30).expect("no violation");
    assert!(Rx::found_left(half).is_none(), "it is read");
    rx.freeze(half).expect("no violation");

    let mut found = Rx::found_left(half).expect("a stretch that is left");
    half.withdraw_readiness();
    found.refuse(half).and_then(|()| found.freeze(half)).expect("no violation");
    assert_eq!(found.left_behind(half), Ok((37, 30, 70)));
    tx.poll(half).expect("no violation");
    assert_eq!(tx.unread(), 70, "bytes that were read go nowhere");
}
