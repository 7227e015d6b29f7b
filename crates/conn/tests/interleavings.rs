//! Any interleaving of writer, reader and freezers delivers every byte once and in order.
#![cfg(not(loom))]

#[path = "../../../fuzz/bodies/conn_world.rs"]
mod conn_world;

use conn_world::{Step, World};
use proptest::prelude::*;
use sidestep_abi::sync::Ordering::Relaxed;

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1usize..12).prop_map(Step::Write),
        6 => (1usize..12).prop_map(Step::Read),
        3 => Just(Step::Begin),
        1 => Just(Step::GiveBack),
        1 => Just(Step::ReaderFreeze),
        1 => Just(Step::BrokerFreeze),
        1 => Just(Step::Refuse),
        1 => Just(Step::Ambush),
        1 => any::<bool>().prop_map(Step::Ready),
        1 => Just(Step::Look),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_byte_once_and_in_order(steps in prop::collection::vec(step(), 1..200)) {
        let mut world = World::new();
        for step in steps {
            world.apply(step).expect("nobody lies");
        }
        world.drain();
    }

    /// A peer that writes anything anywhere can end the connection, nothing else.
    #[test]
    fn lies_are_contained(steps in prop::collection::vec((step(), any::<u64>(), 0usize..9), 1..200)) {
        let mut world = World::new();
        world.distrust();
        for (step, value, place) in steps {
            let w = &world;
            match place {
                0 => w.writer.tail.store(value, Relaxed),
                1 => w.writer.base.store(value, Relaxed),
                2 => w.writer.ring_from.store(value, Relaxed),
                3 => w.reader.head.store(value, Relaxed),
                4 => w.writer.epoch.store(value as u32, Relaxed),
                5 => w.side.seen_epoch.store(value as u32, Relaxed),
                6 => w.side.froze.store(value as u32, Relaxed),
                _ => {}
            }
            if world.apply(step).is_err() {
                return Ok(());
            }
        }
    }
}

/// The rings are used at all, and more than once.
#[test]
fn a_stream_goes_back_and_forth() {
    let mut world = World::new();
    for round in 1..=50 {
        for step in
            [Step::Begin, Step::Write(9), Step::Read(5), Step::GiveBack, Step::Write(3), Step::Read(99), Step::Read(99)]
        {
            world.apply(step).expect("nobody lies");
        }
        assert_eq!((world.tx.ended, world.rx.ended), (round, round));
    }
    world.drain();
    assert_eq!((world.rx.ring, world.rx.kernel), (50 * 5, 50 * 7));
}
