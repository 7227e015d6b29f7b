//! Bytes that change from the kernel to the ring and back arrive once and in order.

use crate::conn_direction::Direction;
use crate::engine::{Arc, explore, thread};
use crate::{SIZE, START, read, write};
use sidestep_conn::{Rx, Tx};

/// Reads this many times, whatever arrives.
fn read_along(direction: &Direction, rx: &mut Rx, times: usize) {
    for _ in 0..times {
        if !read(direction, rx) {
            thread::yield_now();
        }
    }
}

fn begin_if_possible(direction: &Direction, tx: &mut Tx) {
    if tx.may_begin(direction.half()) {
        assert!(tx.begin(direction.half()).expect("no violation"), "the reader is ready all the time");
    }
}

/// Two stretches with a piece by kernel between them; each is ended by the writer or not at all.
///
/// Catches: `seen_epoch` stored Relaxed, or not waited for (the ring is written while the reader of the stretch
/// before still looks at it); `tail`, `epoch` or `complete` Relaxed; `advance`, `enter` or `mark_copying` that store;
/// a stretch that is left without another look at the tail.
#[test]
fn two_stretches_of_a_writer() {
    explore("two_stretches_of_a_writer", 3, || {
        let direction = Arc::new(Direction::new(SIZE));
        let reader = {
            let direction = direction.clone();
            thread::spawn(move || {
                let mut rx = Rx::native(START);
                read_along(&direction, &mut rx, 3);
                rx
            })
        };
        let mut tx = Tx::native(START);
        begin_if_possible(&direction, &mut tx);
        assert!(write(&direction, &mut tx));
        tx.end(direction.half()).expect("no violation");
        assert!(write(&direction, &mut tx), "by kernel, behind the copies");
        begin_if_possible(&direction, &mut tx);
        assert!(write(&direction, &mut tx));
        let mut rx = reader.join().unwrap();
        direction.drain(&mut tx, &mut rx);
        assert_eq!(tx.pos(), START + 3);
    });
}

/// The reader ends the stretch while the writer writes.
///
/// Catches: `head` exchanged or looked at Relaxed; `tail` or `epoch` Relaxed.
#[test]
fn a_reader_that_leaves() {
    explore("a_reader_that_leaves", 3, || {
        let direction = Arc::new(Direction::new(SIZE));
        let reader = {
            let direction = direction.clone();
            thread::spawn(move || {
                let mut rx = Rx::native(START);
                read_along(&direction, &mut rx, 2);
                leave(&direction, &mut rx);
                read_along(&direction, &mut rx, 1);
                rx
            })
        };
        let mut tx = Tx::native(START);
        direction.begin(&mut tx).expect("no violation");
        let written = (0..3).filter(|_| write(&direction, &mut tx)).count();
        let mut rx = reader.join().unwrap();
        direction.drain(&mut tx, &mut rx);
        assert_eq!(tx.pos(), START + written as u64);
    });
}

fn leave(direction: &Direction, rx: &mut Rx) {
    rx.leave_ring(direction.half()).expect("no violation");
}

/// The writer ends a stretch with two unread bytes, and continues by kernel, while `reads` runs.
fn ended_beside(name: &'static str, reads: fn(&Direction, &mut Rx)) {
    explore(name, 3, move || {
        let direction = Arc::new(Direction::new(SIZE));
        let (mut tx, mut rx) = (Tx::native(START), Rx::native(START));
        assert!(tx.begin(direction.half()).expect("no violation"));
        assert!(write(&direction, &mut tx) && write(&direction, &mut tx));
        let reader = {
            let direction = direction.clone();
            thread::spawn(move || {
                reads(&direction, &mut rx);
                rx
            })
        };
        tx.end(direction.half()).expect("no violation");
        assert!(write(&direction, &mut tx), "by kernel");
        let mut rx = reader.join().unwrap();
        direction.drain(&mut tx, &mut rx);
        assert_eq!(tx.pos(), START + 3);
    });
}

/// Both end the stretch at the same time, and agree on where the kernel's bytes continue.
///
/// Catches: copies that are announced by a plain store, or after they are sent; a mark that is set on an ended stretch; copies
/// that are not continued where the reader has left; `copied` told too late, or for another stretch.
#[test]
fn both_end_it() {
    ended_beside("both_end_it", |direction, rx| {
        read_along(direction, rx, 1);
        leave(direction, rx);
        direction.discard(rx).expect("no violation");
    });
}

/// A reader discards copies early, while the writer is still copying and then continues by kernel.
///
/// Catches: news that are taken for copies, because the queue's length was asked after the end.
#[test]
fn copies_are_discarded_early() {
    ended_beside("copies_are_discarded_early", |direction, rx| {
        for _ in 0..2 {
            read_along(direction, rx, 1);
            direction.discard(rx).expect("no violation");
        }
    });
}

/// A reader leaves, and sends to itself in place of its writer; but the writer runs again.
///
/// Catches: a claim that is loaded and then stored, or taken or given back Relaxed; a writer that does not ask how far the other
/// went.
#[test]
fn a_deputy_and_its_writer() {
    explore("a_deputy_and_its_writer", 3, || {
        let direction = Arc::new(Direction::new(SIZE));
        let (mut tx, mut rx) = (Tx::native(START), Rx::native(START));
        assert!(tx.begin(direction.half()).expect("no violation"));
        assert!(write(&direction, &mut tx) && write(&direction, &mut tx) && read(&direction, &mut rx));
        let reader = {
            let direction = direction.clone();
            thread::spawn(move || {
                leave(&direction, &mut rx);
                direction.deputy(&mut rx, usize::MAX).expect("no violation");
                rx
            })
        };
        assert!(write(&direction, &mut tx));
        let mut rx = reader.join().unwrap();
        direction.drain(&mut tx, &mut rx);
        assert_eq!(tx.pos(), START + 3);
    });
}
