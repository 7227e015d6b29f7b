//! A writer dies: every byte that it had written arrives once, from the ring if necessary.
#![cfg(not(loom))]

mod words;

use sidestep_abi::link::FROZEN;
use sidestep_abi::sync::Ordering::SeqCst;
use sidestep_conn::{Advance, Read, Rx, Tx, Write};
use words::Words;

#[test]
fn in_the_middle_of_a_stretch() {
    let words = Words::new();
    let (_, mut rx) = words.with_unread(5);
    assert_eq!(rx.rest(words.half()), Ok(5));
    assert_eq!(rx.took_rest(words.half(), 2), Ok(Advance::Done));
    assert_eq!((rx.rest(words.half()), rx.pos()), (Ok(3), 102));
}

/// The reader has left the ring, and the writer dies while it sends the unread bytes.
#[test]
fn while_it_takes_back() {
    let words = Words::new();
    let (mut tx, mut rx) = words.with_unread(5);
    rx.freeze(words.half()).expect("no violation");
    words.half().hint_freeze();
    assert_eq!(tx.next(words.half(), 0), Ok(Write::Unread { at: 0, len: 5 }));
    tx.sent_unread(words.half(), 2);
    assert_eq!(rx.next(words.half()), Ok(Read::Kernel(u64::MAX)));
    rx.took_kernel(2);
    assert_eq!((rx.rest(words.half()), rx.at(words.half())), (Ok(3), 2));
    assert_eq!(rx.took_rest(words.half(), 3), Ok(Advance::Done));
    assert_eq!((rx.rest(words.half()), rx.pos()), (Ok(0), 105));
}

/// The writer ends the stretch and dies while it copies: the ring has all bytes, and the kernel has some of them as well.
#[test]
fn while_it_copies() {
    for read_before in 0..=5 {
        let words = Words::new();
        let (mut tx, mut rx) = words.with_unread(5);
        tx.end(words.half()).expect("no violation");
        assert_eq!(tx.next(words.half(), 0), Ok(Write::Unread { at: 0, len: 5 }));
        tx.sent_unread(words.half(), 2);
        assert_eq!(rx.next(words.half()), Ok(Read::Ring(5)));
        assert_eq!(rx.took_ring(words.half(), read_before), Ok(Advance::Done));
        let early = rx.discardable(words.half(), 2).expect("no violation");
        assert_eq!(early, 2.min(read_before as u64), "no more than what was read in the ring");
        rx.discarded(early);
        assert_eq!(rx.rest(words.half()), Ok(5 - read_before));
        assert_eq!(rx.took_rest(words.half(), 5 - read_before), Ok(Advance::Done));
        assert_eq!(rx.discardable(words.half(), 2 - early), Ok(2 - early));
        rx.discarded(2 - early);
        assert_eq!((rx.rest(words.half()), rx.pos(), rx.ring), (Ok(0), 105, 5));
    }
}

/// As before, but the reader leaves the ring before it has read the bytes that were copied.
#[test]
fn while_it_copies_for_a_reader_that_leaves() {
    let words = Words::new();
    let (mut tx, mut rx) = words.with_unread(5);
    tx.end(words.half()).expect("no violation");
    tx.sent_unread(words.half(), 3);
    assert_eq!((rx.next(words.half()), rx.took_ring(words.half(), 1)), (Ok(Read::Ring(5)), Ok(Advance::Done)));
    rx.freeze(words.half()).expect("no violation");
    assert_eq!(rx.next(words.half()), Ok(Read::Copies));
    assert_eq!(rx.discardable(words.half(), 3), Ok(1));
    rx.discarded(1);
    assert_eq!(rx.next(words.half()), Ok(Read::Kernel(u64::MAX)));
    rx.took_kernel(2);
    assert_eq!((rx.rest(words.half()), rx.at(words.half())), (Ok(2), 3));
}

/// The reader has noticed an end that the writer had not learnt of when it wrote on.
#[test]
fn before_it_was_told_of_the_end() {
    let words = Words::new();
    let (mut tx, mut rx) = words.with_unread(3);
    words.reader.head.fetch_or(FROZEN, SeqCst); // the freeze, without the hint that follows it
    assert_eq!(rx.next(words.half()), Ok(Read::Kernel(u64::MAX)));
    tx.put_ring(words.half(), 2).expect("it knows of nothing");
    assert!(tx.in_ring() && tx.pos() == 105);
    assert_eq!(rx.rest(words.half()), Ok(5), "all that write() has returned for");
}

/// A living writer has sent everything by kernel before the end: no byte is read twice.
#[test]
fn after_an_orderly_end_there_is_nothing() {
    let words = Words::new();
    let (mut tx, mut rx) = words.with_unread(5);
    tx.end(words.half()).expect("no violation");
    tx.sent_unread(words.half(), 5);
    tx.put_kernel(2);
    assert_eq!(rx.next(words.half()), Ok(Read::Ring(5)));
    assert_eq!(rx.took_ring(words.half(), 5), Ok(Advance::Done));
    assert_eq!((rx.next(words.half()), rx.discardable(words.half(), 7)), (Ok(Read::Copies), Ok(5)));
    rx.discarded(5);
    assert_eq!(rx.next(words.half()), Ok(Read::Kernel(u64::MAX)));
    rx.took_kernel(2);
    assert_eq!((rx.rest(words.half()), rx.pos()), (Ok(0), 107));
}

/// A writer that becomes another program leaves bytes in the ring only.
#[test]
fn without_copies() {
    let words = Words::new();
    let (mut tx, mut rx) = words.with_unread(5);
    tx.end(words.half()).expect("no violation");
    tx.sent_unread(words.half(), 2);
    tx.end_without_copies(words.half()).expect("no violation");
    tx.put_kernel(1);
    assert_eq!((rx.next(words.half()), rx.took_ring(words.half(), 5)), (Ok(Read::Ring(5)), Ok(Advance::Done)));
    assert_eq!((rx.next(words.half()), rx.discardable(words.half(), 3)), (Ok(Read::Copies), Ok(2)));
    rx.discarded(2);
    assert_eq!(rx.next(words.half()), Ok(Read::Kernel(u64::MAX)));
}

/// A reset destroys the kernel's queue: its bytes are lost, and bytes of the ring must not take their place.
#[test]
fn what_the_kernel_lost_is_not_looked_for_in_the_ring() {
    let words = Words::new();
    let (mut tx, mut rx) = (Tx::native(110), Rx::native(100));
    assert_eq!(tx.begin(words.half()), Ok(true));
    tx.put_ring(words.half(), 4).expect("space");
    assert_eq!(rx.next(words.half()), Ok(Read::Kernel(10)), "ten bytes lie in the kernel");
    rx.took_kernel(3);
    assert_eq!(rx.rest(words.half()), Ok(0), "seven bytes are missing before the ring's");
}

/// A writer that has begun another stretch had sent the last one by kernel: its bytes in the ring are old.
#[test]
fn an_old_stretch_is_not_read_once_another_has_begun() {
    let words = Words::new();
    let (mut tx, mut rx) = words.with_unread(5);
    rx.freeze(words.half()).expect("no violation");
    words.half().hint_freeze();
    assert_eq!(tx.next(words.half(), 0), Ok(Write::Unread { at: 0, len: 5 }));
    tx.sent_unread(words.half(), 5);
    tx.put_kernel(2);
    assert!(tx.may_begin(words.half()) && tx.begin(words.half()) == Ok(true));
    tx.put_ring(words.half(), 3).expect("space");
    rx.took_kernel(1);
    assert_eq!(rx.rest(words.half()), Ok(0), "six bytes by kernel are missing");
}

/// No other stretch begins before the reader knows the number of copies of the last one.
#[test]
fn the_number_of_copies_is_asked_in_time() {
    let words = Words::new();
    let (mut tx, mut rx) = words.with_unread(5);
    tx.end(words.half()).expect("no violation");
    tx.sent_unread(words.half(), 1);
    assert_eq!((rx.next(words.half()), rx.took_ring(words.half(), 3)), (Ok(Read::Ring(5)), Ok(Advance::Done)));
    rx.freeze(words.half()).expect("no violation");
    words.half().hint_freeze();
    assert_eq!(tx.next(words.half(), 0), Ok(Write::Unread { at: 3, len: 2 }), "it goes on where the reader has left");
    tx.sent_unread(words.half(), 2);
    tx.put_kernel(4);
    assert!(!tx.may_begin(words.half()), "the reader may still take news for copies");
    assert_eq!(rx.discardable(words.half(), 7), Ok(1));
    rx.discarded(1);
    assert_eq!(rx.next(words.half()), Ok(Read::Kernel(u64::MAX)));
    assert!(tx.may_begin(words.half()));
    rx.took_kernel(6);
    assert_eq!((rx.pos(), tx.pos()), (109, 109));
}

/// The reader has left the ring, and the writer ends without copies: the bytes go by kernel nevertheless.
#[test]
fn without_copies_but_not_without_bytes() {
    let words = Words::new();
    let (mut tx, mut rx) = words.with_unread(5);
    rx.freeze(words.half()).expect("no violation");
    tx.end_without_copies(words.half()).expect("no violation");
    assert_eq!(tx.next(words.half(), 0), Ok(Write::Unread { at: 0, len: 5 }));
    tx.abandon(words.half());
    assert_eq!(tx.next(words.half(), 0), Ok(Write::Kernel), "unless the kernel takes nothing any more");
}

/// A reader that has not entered the stretch yet misses nothing either.
#[test]
fn not_without_copies_for_a_reader_that_has_not_come() {
    let words = Words::new();
    let mut tx = Tx::native(100);
    assert_eq!(tx.begin(words.half()), Ok(true));
    tx.put_ring(words.half(), 3).expect("space");
    tx.end_without_copies(words.half()).expect("no violation");
    assert_eq!(tx.next(words.half(), 0), Ok(Write::Unread { at: 0, len: 3 }));
}
