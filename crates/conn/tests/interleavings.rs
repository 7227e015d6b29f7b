//! Any interleaving of writer, reader and freezers delivers every byte once and in order.
#![cfg(not(loom))]

#[path = "../../../fuzz/bodies/conn_direction.rs"]
mod conn_direction;
#[path = "../../../fuzz/bodies/conn_steps.rs"]
mod conn_steps;
#[path = "../../../fuzz/bodies/conn_world.rs"]
mod conn_world;
#[path = "../../../fuzz/bodies/engine.rs"]
mod engine;
#[path = "../../../fuzz/bodies/input.rs"]
mod input;
#[path = "../../../fuzz/bodies/memory.rs"]
mod memory;

use conn_world::{Step, World};
use input::Input;
use proptest::prelude::*;

fn step() -> impl Strategy<Value = Step> {
    any::<[u8; 3]>().prop_map(|bytes| Step::from_bytes(&mut Input::new(&bytes)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_byte_once_and_in_order(steps in prop::collection::vec(step(), 1..200)) {
        conn_steps::every_byte_once_and_in_order(steps);
    }

    #[test]
    fn no_byte_waits_for_its_writer(
        steps in prop::collection::vec(prop_oneof![20 => step(), 1 => Just(Step::EndAlone)], 1..100)
    ) {
        conn_steps::no_byte_waits_for_its_writer(steps);
    }

    /// A peer that writes anything anywhere can end the connection, and do nothing else.
    #[test]
    fn violations_are_contained(bytes in prop::collection::vec(any::<u8>(), 1..600)) {
        conn_steps::violations_are_contained(&mut Input::new(&bytes));
    }
}

/// Rings are used, and more than once. The reader reads five bytes before the writer ends the stretch, and four after that,
/// whose copies the program does not see.
#[test]
fn a_stream_goes_back_and_forth() {
    let mut world = World::new();
    for round in 1..=50 {
        for step in
            [Step::Begin, Step::Write(9), Step::Read(5), Step::End, Step::Write(3), Step::Read(99), Step::Read(99)]
        {
            world.apply(step).expect("no violation");
        }
        assert_eq!((world.tx.ended, world.rx.ended), (round, round));
    }
    world.drain();
    assert_eq!((world.rx.ring, world.rx.kernel, world.rx.socket), (50 * 9, 50 * 3, 50 * 7));
}

/// A reader whose kernel takes nothing more enters a ring ahead of unread kernel bytes. Then its writer sends no copies.
#[test]
fn a_reader_enters_ahead_of_the_kernels_bytes() {
    for before in 0..=3 {
        for after in 0..=8 {
            let mut world = World::new();
            for step in [Step::Write(3), Step::Begin, Step::Write(5), Step::Read(before), Step::EnterAhead] {
                world.apply(step).expect("no violation");
            }
            assert_eq!((world.rx.in_ring(), world.rx.pos()), (true, before as u64));
            for step in [Step::Read(after), Step::EndAlone, Step::Look(99)] {
                world.apply(step).expect("no violation");
            }
            world.drain();
            assert_eq!((world.rx.kernel, world.rx.ring, world.rx.socket), (3, 5, 3), "{before} and {after} read");
        }
    }
}

/// The same reader then leaves the ring after all: everything comes by kernel.
#[test]
fn a_reader_leaves_what_it_has_entered_ahead() {
    for read in 0..=6 {
        let mut world = World::new();
        for step in [Step::Write(3), Step::Begin, Step::Write(5), Step::End, Step::Look(2), Step::EnterAhead] {
            world.apply(step).expect("no violation");
        }
        for step in [Step::Read(read), Step::ReaderFreeze, Step::Look(99), Step::Write(2)] {
            world.apply(step).expect("no violation");
        }
        world.drain();
        assert_eq!(world.rx.pos(), 10);
    }
}

/// A reader that leaves the ring, even in the middle of the copies, gets its unread bytes by kernel.
#[test]
fn a_reader_leaves_between_the_copies() {
    for copied in 0..=4 {
        for read_after in 0..=4 {
            let mut world = World::new();
            for step in
                [Step::Begin, Step::Write(9), Step::Read(5), Step::End, Step::Look(copied), Step::Read(read_after)]
            {
                world.apply(step).expect("no violation");
            }
            for step in [Step::ReaderFreeze, Step::Ready(false), Step::Discard, Step::Look(99), Step::Write(2)] {
                world.apply(step).expect("no violation");
            }
            world.drain();
            assert_eq!(world.rx.pos(), 11, "{copied} copied, {read_after} read after that");
        }
    }
}

/// The writer does nothing more. A reader that leaves the ring sends the unread bytes to itself, in one or two parts, wherever
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
                    world.apply(step).expect("no violation");
                }
                for step in [Step::ReaderFreeze, Step::Ready(false), Step::Deputy(part), Step::Deputy(9)] {
                    world.apply(step).expect("no violation");
                }
                world.read_all();
                world.apply(Step::Write(2)).expect("the writer comes back");
                world.drain();
            }
        }
    }
}
