//! A stretch that begins while the reader withdraws its readiness.

use crate::explore;
use crate::world::{START, World};
use loom::sync::Arc;
use loom::thread;
use sidestep_abi::sync::Ordering::*;
use sidestep_conn::{Rx, Tx};

/// Either the writer sees that the reader is no longer ready, or the reader sees the stretch: a stretch that
/// neither has ended would wait for a reader who never comes.
///
/// Catches: no fence in `Tx::begin`; `Tx::begin` that does not ask again; no fence in the withdrawal.
#[test]
fn a_withdrawn_reader_gets_no_stretch() {
    explore("a_withdrawn_reader_gets_no_stretch", 5, || {
        let world = Arc::new(World::new());
        let reader = {
            let world = world.clone();
            thread::spawn(move || {
                let mut rx = Rx::native(START);
                world.half().withdraw_readiness();
                rx.refuse(world.half()).expect("nobody lies");
                (rx, world.side.seen_epoch.load(Relaxed) == 1)
            })
        };
        let mut tx = Tx::native(START);
        let begun = tx.may_begin(world.half()) && tx.begin(world.half()).expect("nobody lies");
        assert!(world.write(&mut tx));
        let (mut rx, refused) = reader.join().unwrap();
        assert!(!begun || refused, "the stretch has begun, and the reader does not know");
        assert!(!rx.in_ring());
        world.drain(&mut tx, &mut rx);
        assert!(!tx.in_ring());
    });
}

/// A reader that takes nothing more from the kernel than what it has there, and a writer that begins a stretch and ends it
/// without copies: either the reader is in the ring, or the writer knows that it has not come and sends them all the same.
///
/// Catches: no fence in the withdrawal; a writer that leaves bytes to a reader that has not entered.
#[test]
fn a_reader_enters_ahead() {
    explore("a_reader_enters_ahead", 3, || {
        let world = Arc::new(World::new());
        let mut tx = Tx::native(START);
        assert!(world.write(&mut tx), "by kernel");
        let reader = {
            let world = world.clone();
            thread::spawn(move || {
                let mut rx = Rx::native(START);
                world.half().withdraw_readiness();
                rx.enter_ahead(world.half()).expect("nobody lies");
                world.read(&mut rx);
                world.read(&mut rx);
                rx
            })
        };
        if tx.may_begin(world.half()) {
            tx.begin(world.half()).expect("nobody lies");
        }
        assert!(world.write(&mut tx));
        tx.end_without_copies(world.half()).expect("nobody lies");
        assert!(world.write(&mut tx), "by kernel");
        let mut rx = reader.join().unwrap();
        world.drain(&mut tx, &mut rx);
        assert_eq!(tx.pos(), START + 3);
    });
}
