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
/// before still looks at it); `tail` or `epoch` Relaxed; `advance`, `enter` or `freeze` that store.
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
        tx.give_back(world.half()).expect("nobody lies");
        assert!(world.write(&mut tx), "by kernel, behind what was taken back");
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
                rx.refuse(world.half()).expect("nobody lies");
                rx.freeze(world.half());
                world.half().hint_freeze();
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
