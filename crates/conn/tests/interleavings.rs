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
        2 => Just(Step::End),
        1 => Just(Step::EnterAhead),
        1 => Just(Step::ReaderFreeze),
        1 => Just(Step::BrokerFreeze),
        1 => Just(Step::Refuse),
        1 => Just(Step::Ambush),
        1 => any::<bool>().prop_map(Step::Ready),
        1 => Just(Step::Look(usize::MAX)),
        2 => (0usize..6).prop_map(Step::Look),
        1 => Just(Step::Discard),
        1 => (0usize..6).prop_map(Step::Deputy),
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

    /// Whatever the writer does, and wherever it stops for ever: what it has written can be read without it, as long as the
    /// reader has not left the ring.
    #[test]
    fn no_byte_waits_for_its_writer(
        steps in prop::collection::vec(prop_oneof![20 => step(), 1 => Just(Step::EndAlone)], 1..100)
    ) {
        let mut world = World::new();
        for step in steps.into_iter().filter(|s| !s.is_leaving()) {
            world.apply(step).expect("nobody lies");
        }
        world.read_all();
    }

    /// A peer that writes anything anywhere can end the connection, nothing else.
    #[test]
    fn lies_are_contained(steps in prop::collection::vec((step(), any::<u64>(), 0usize..12), 1..200)) {
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
                7 => w.writer.resume.store(value, Relaxed),
                8 => w.writer.copied.store(value, Relaxed),
                9 => w.writer.complete.store(value as u32, Relaxed),
                _ => {}
            }
            if world.apply(step).is_err() {
                return Ok(());
            }
        }
    }
}

/// The rings are used at all, and more than once: five bytes are read there before the writer ends the stretch, and four after
/// that, of which the kernel carries copies that nobody sees.
#[test]
fn a_stream_goes_back_and_forth() {
    let mut world = World::new();
    for round in 1..=50 {
        for step in
            [Step::Begin, Step::Write(9), Step::Read(5), Step::End, Step::Write(3), Step::Read(99), Step::Read(99)]
        {
            world.apply(step).expect("nobody lies");
        }
        assert_eq!((world.tx.ended, world.rx.ended), (round, round));
    }
    world.drain();
    assert_eq!((world.rx.ring, world.rx.kernel, world.rx.socket), (50 * 9, 50 * 3, 50 * 7));
}

/// A reader whose kernel takes nothing more enters a ring ahead of unread bytes of the kernel: its writer sends no copies then.
#[test]
fn a_reader_enters_ahead_of_the_kernels_bytes() {
    for before in 0..=3 {
        for after in 0..=8 {
            let mut world = World::new();
            for step in [Step::Write(3), Step::Begin, Step::Write(5), Step::Read(before), Step::EnterAhead] {
                world.apply(step).expect("nobody lies");
            }
            assert_eq!((world.rx.in_ring(), world.rx.pos()), (true, before as u64));
            for step in [Step::Read(after), Step::EndAlone, Step::Look(99)] {
                world.apply(step).expect("nobody lies");
            }
            world.drain();
            assert_eq!((world.rx.kernel, world.rx.ring, world.rx.socket), (3, 5, 3), "{before} and {after} read");
        }
    }
}

/// The same, and then it leaves the ring all the same: everything comes by kernel.
#[test]
fn a_reader_leaves_what_it_has_entered_ahead() {
    for read in 0..=6 {
        let mut world = World::new();
        for step in [Step::Write(3), Step::Begin, Step::Write(5), Step::End, Step::Look(2), Step::EnterAhead] {
            world.apply(step).expect("nobody lies");
        }
        for step in [Step::Read(read), Step::ReaderFreeze, Step::Look(99), Step::Write(2)] {
            world.apply(step).expect("nobody lies");
        }
        world.drain();
        assert_eq!(world.rx.pos(), 10);
    }
}

/// A reader that leaves the ring gets by kernel what it has not read, also in the middle of the copies.
#[test]
fn a_reader_leaves_between_the_copies() {
    for copied in 0..=4 {
        for read_after in 0..=4 {
            let mut world = World::new();
            for step in
                [Step::Begin, Step::Write(9), Step::Read(5), Step::End, Step::Look(copied), Step::Read(read_after)]
            {
                world.apply(step).expect("nobody lies");
            }
            for step in [Step::ReaderFreeze, Step::Ready(false), Step::Discard, Step::Look(99), Step::Write(2)] {
                world.apply(step).expect("nobody lies");
            }
            world.drain();
            assert_eq!(world.rx.pos(), 11, "{copied} copied, {read_after} read after that");
        }
    }
}

/// A writer that does nothing more: a reader that leaves the ring sends to itself what is unread, in one or two parts, wherever
/// the writer was with its copies.
#[test]
fn a_reader_that_leaves_an_idle_writer() {
    for copied in 0..=4 {
        for read_after in 0..=4 {
            for part in 0..=4 {
                let mut world = World::new();
                for step in
                    [Step::Begin, Step::Write(9), Step::Read(5), Step::End, Step::Look(copied), Step::Read(read_after)]
                {
                    world.apply(step).expect("nobody lies");
                }
                for step in [Step::ReaderFreeze, Step::Ready(false), Step::Deputy(part), Step::Deputy(9)] {
                    world.apply(step).expect("nobody lies");
                }
                world.read_all();
                world.apply(Step::Write(2)).expect("the writer comes back");
                world.drain();
            }
        }
    }
}
