//! Bytes that change from the kernel to the ring and back arrive once and in order.

use crate::explore;
use crate::world::{START, World};
use loom::sync::Arc;
use loom::thread;
use sidestep_conn::{Rx, Tx};

/// Reads so often, whatever comes.
fn read_along(world: &World, rx: &mut Rx, times: usize) {
    for _ in 0..times {
        if !world.read(rx) {
            thread::yield_now();
        }
    }
}

fn begin_if_possible(world: &World, tx: &mut Tx) {
    if tx.may_begin(world.half()) {
        assert!(tx.begin(world.half()).expect("nobody lies"));
    }
}

/// Two stretches with a piece by kernel between them, each ended by the writer or by nobody.
///
/// Catches: `seen_epoch` stored Relaxed, or not waited for (the ring is written while the reader of the stretch
/// before still looks at it); `tail`, `epoch` or `complete` Relaxed; `advance`, `enter` or `mark_copying` that store;
/// a stretch that is left without another look at the tail.
#[test]
fn two_stretches_of_a_writer() {
    explore("two_stretches_of_a_writer", 3, || {
        let world = Arc::new(World::new());
        let reader = {
            let world = world.clone();
            thread::spawn(move || {
                let mut rx = Rx::native(START);
                read_along(&world, &mut rx, 3);
                rx
            })
        };
        let mut tx = Tx::native(START);
        begin_if_possible(&world, &mut tx);
        assert!(world.write(&mut tx));
        tx.end(world.half()).expect("nobody lies");
        assert!(world.write(&mut tx), "by kernel, behind the copies");
        begin_if_possible(&world, &mut tx);
        assert!(world.write(&mut tx));
        let mut rx = reader.join().unwrap();
        world.drain(&mut tx, &mut rx);
        assert_eq!(tx.pos(), START + 3);
    });
}

/// The reader ends the stretch while the writer writes.
///
/// Catches: `head` exchanged or looked at Relaxed; `tail` or `epoch` Relaxed.
#[test]
fn a_reader_that_leaves() {
    explore("a_reader_that_leaves", 3, || {
        let world = Arc::new(World::new());
        let reader = {
            let world = world.clone();
            thread::spawn(move || {
                let mut rx = Rx::native(START);
                read_along(&world, &mut rx, 2);
                leave(&world, &mut rx);
                read_along(&world, &mut rx, 1);
                rx
            })
        };
        let mut tx = Tx::native(START);
        begin_if_possible(&world, &mut tx);
        let written = (0..3).filter(|_| world.write(&mut tx)).count();
        let mut rx = reader.join().unwrap();
        world.drain(&mut tx, &mut rx);
        assert_eq!(tx.pos(), START + written as u64);
    });
}

fn leave(world: &World, rx: &mut Rx) {
    rx.refuse(world.half()).expect("nobody lies");
    rx.freeze(world.half()).expect("nobody lies");
    world.half().hint_freeze();
}

/// The writer ends a stretch with two unread bytes, and goes on by kernel, while the reader is at work.
fn ended_beside(name: &'static str, reads: fn(&World, &mut Rx)) {
    explore(name, 3, move || {
        let world = Arc::new(World::new());
        let (mut tx, mut rx) = (Tx::native(START), Rx::native(START));
        assert!(tx.begin(world.half()).expect("nobody lies"));
        assert!(world.write(&mut tx) && world.write(&mut tx));
        let reader = {
            let world = world.clone();
            thread::spawn(move || {
                reads(&world, &mut rx);
                rx
            })
        };
        tx.end(world.half()).expect("nobody lies");
        assert!(world.write(&mut tx), "by kernel");
        let mut rx = reader.join().unwrap();
        world.drain(&mut tx, &mut rx);
        assert_eq!(tx.pos(), START + 3);
    });
}

/// Both end the stretch at the same time: the kernel's bytes go on where both believe.
///
/// Catches: copies that are announced by a plain store, or after they are sent; a mark that is set on an ended stretch; copies
/// that are not continued where the reader has left; `copied` told too late, or for another stretch.
#[test]
fn both_end_it() {
    ended_beside("both_end_it", |world, rx| {
        read_along(world, rx, 1);
        leave(world, rx);
        world.discard(rx);
    });
}

/// A reader discards copies early, while the writer still copies and then goes on by kernel.
///
/// Catches: news that are taken for copies, because the queue's length was asked after the end.
#[test]
fn copies_are_discarded_early() {
    ended_beside("copies_are_discarded_early", |world, rx| {
        for _ in 0..2 {
            read_along(world, rx, 1);
            world.discard(rx);
        }
    });
}

/// A reader leaves, and sends to itself what its writer does not; but the writer just comes back.
///
/// Catches: a claim that is loaded and then stored, or taken or given back Relaxed; a writer that does not ask how far the other
/// went.
#[test]
fn a_deputy_and_its_writer() {
    explore("a_deputy_and_its_writer", 3, || {
        let world = Arc::new(World::new());
        let (mut tx, mut rx) = (Tx::native(START), Rx::native(START));
        assert!(tx.begin(world.half()).expect("nobody lies"));
        assert!(world.write(&mut tx) && world.write(&mut tx) && world.read(&mut rx));
        let reader = {
            let world = world.clone();
            thread::spawn(move || {
                leave(&world, &mut rx);
                world.deputy(&mut rx);
                rx
            })
        };
        assert!(world.write(&mut tx));
        let mut rx = reader.join().unwrap();
        world.drain(&mut tx, &mut rx);
        assert_eq!(tx.pos(), START + 3);
    });
}
