//! A writer dies: what it had written by then arrives, from the ring if need be, once.
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

#[test]
fn while_it_takes_back() {
    let words = Words::new();
    let (mut tx, mut rx) = words.with_unread(5);
    tx.give_back(words.half()).expect("nobody lies");
    assert_eq!(tx.next(words.half(), 0), Ok(Write::TakeBack { at: 0, len: 5 }));
    tx.took_back(2);
    assert_eq!(rx.next(words.half()), Ok(Read::Kernel(u64::MAX)));
    rx.took_kernel(2);
    assert_eq!((rx.rest(words.half()), rx.at(words.half())), (Ok(3), 2));
    assert_eq!(rx.took_rest(words.half(), 3), Ok(Advance::Done));
    assert_eq!((rx.rest(words.half()), rx.pos()), (Ok(0), 105));
}

/// The reader has noticed an end of which the writer had not been told yet when it wrote on.
#[test]
fn before_it_was_told_of_the_end() {
    let words = Words::new();
    let (mut tx, mut rx) = words.with_unread(3);
    words.reader.head.fetch_or(FROZEN, SeqCst);
    assert_eq!(rx.next(words.half()), Ok(Read::Kernel(u64::MAX)));
    tx.put_ring(words.half(), 2).expect("it knows of nothing");
    assert!(tx.in_ring() && tx.pos() == 105);
    assert_eq!(rx.rest(words.half()), Ok(5), "all that write() has returned for");
}

/// A writer that lives has sent everything by kernel before the end: nothing is read twice.
#[test]
fn after_an_orderly_end_there_is_nothing() {
    let words = Words::new();
    let (mut tx, mut rx) = words.with_unread(5);
    tx.give_back(words.half()).expect("nobody lies");
    tx.took_back(5);
    tx.put_kernel(2);
    assert_eq!(rx.next(words.half()), Ok(Read::Kernel(u64::MAX)));
    rx.took_kernel(7);
    assert_eq!((rx.rest(words.half()), rx.pos()), (Ok(0), 107));
}

/// The kernel's queue dies with a writer that is reset: what lay in it is gone, and nothing in the ring takes its place.
#[test]
fn what_the_kernel_lost_is_not_looked_for_in_the_ring() {
    let words = Words::new();
    let (mut tx, mut rx) = (Tx::native(110), Rx::native(100));
    assert_eq!(tx.begin(words.half()), Ok(true));
    tx.put_ring(words.half(), 4).expect("space");
    assert_eq!(rx.next(words.half()), Ok(Read::Kernel(10)), "ten bytes lie in the kernel");
    tx.give_back(words.half()).expect("nobody lies");
    assert_eq!(rx.next(words.half()), Ok(Read::Kernel(u64::MAX)), "the stretch was cancelled");
    rx.took_kernel(3);
    assert_eq!(rx.rest(words.half()), Ok(0), "seven bytes are missing before the ring's");
}

/// A writer that has begun another stretch had sent the last one by kernel: its bytes in the ring are old.
#[test]
fn an_old_stretch_is_not_read_once_another_has_begun() {
    let words = Words::new();
    let (mut tx, mut rx) = words.with_unread(5);
    tx.give_back(words.half()).expect("nobody lies");
    tx.took_back(5);
    assert_eq!(rx.next(words.half()), Ok(Read::Kernel(u64::MAX)));
    tx.put_kernel(2);
    assert!(tx.may_begin(words.half()) && tx.begin(words.half()) == Ok(true));
    tx.put_ring(words.half(), 3).expect("space");
    rx.took_kernel(1);
    assert_eq!(rx.rest(words.half()), Ok(0), "six bytes by kernel are missing");
}
