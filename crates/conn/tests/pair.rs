//! Two ends of a connection, with two threads each, beside a plain model of TCP: every order of some small programs, and many
//! orders of large ones.
#![cfg(not(loom))]

#[path = "../../../fuzz/bodies/engine.rs"]
mod engine;
#[path = "../../../fuzz/bodies/input.rs"]
mod input;
#[path = "../../../fuzz/bodies/memory.rs"]
mod memory;
#[path = "../../../fuzz/bodies/pair_ends.rs"]
mod pair_ends;
#[path = "../../../fuzz/bodies/pair_steps.rs"]
mod pair_steps;
#[path = "../../../fuzz/bodies/pair_wire.rs"]
mod pair_wire;
#[path = "../../../fuzz/bodies/repeat.rs"]
mod repeat;

use input::Input;
use pair_ends::PATIENCE;
use pair_steps::{RING, Setup, Step, Step::*, World, as_plain_tcp, every_order};
use proptest::prelude::*;
use sidestep_conn::Flip;

fn step() -> impl Strategy<Value = Step> {
    any::<[u8; 4]>().prop_map(|bytes| Step::from_bytes(&mut Input::new(&bytes)))
}

fn setup() -> impl Strategy<Value = Setup> {
    any::<[u8; 3]>().prop_map(|bytes| Setup::from_bytes(&mut Input::new(&bytes)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn any_order_of_many_steps_is_as_plain_tcp(setup in setup(), steps in prop::collection::vec(step(), 1..150)) {
        as_plain_tcp(setup, steps);
    }
}

#[test]
fn any_bytes() {
    repeat::repeat(20_000, 600, pair_steps::run);
}

/// Every order of these threads' steps, with a kernel that takes little, as much as a ring, or everything.
fn all_orders(threads: &[&[Step]], orders: u64) {
    for room in [2, RING, 64] {
        for flip in [Flip::NEVER, Flip::every(3)] {
            let setup = Setup { room, flip };
            let tried = every_order(threads, &mut |steps| {
                let run = std::panic::AssertUnwindSafe(|| as_plain_tcp(setup, steps.iter().copied()));
                if let Err(panic) = std::panic::catch_unwind(run) {
                    println!("{setup:?}: {steps:?}");
                    std::panic::resume_unwind(panic);
                }
            });
            assert_eq!(tried, orders, "the orders of {threads:?}");
        }
    }
}

#[test]
fn a_hold_and_its_end_beside_writer_and_reader() {
    all_orders(&[&[Write(0, 3), Write(0, 7), Write(0, 2)], &[Read(1, 2), Read(1, 9)], &[Hold(true), Hold(false)]], 210);
}

#[test]
fn both_directions_at_once() {
    all_orders(
        &[&[Write(0, 3), Shut(0)], &[Read(0, 2), Read(0, 9)], &[Write(1, 9), Write(1, 1)], &[Read(1, 1), Read(1, 9)]],
        2520,
    );
}

#[test]
fn a_reader_leaves_while_its_writer_ends() {
    all_orders(
        &[&[Write(0, 6), Serve(0), Shut(0)], &[Read(1, 2), Leave(1), Deputise(1, 2), Read(1, 3)], &[Hold(true)]],
        280,
    );
}

#[test]
fn the_writer_dies_at_any_moment() {
    all_orders(&[&[Write(0, 5), Keep(0), Write(0, 5)], &[Read(1, 3), Leave(1), Deputise(1, 1)], &[Die(0), Bury]], 560);
}

#[test]
fn the_reader_dies_at_any_moment() {
    all_orders(
        &[&[Write(0, 9), Serve(0), Write(0, 9), Shut(0)], &[Read(1, 3), Leave(1)], &[DieOverSending(1), Bury]],
        420,
    );
    all_orders(&[&[Write(0, 9), Serve(0), Write(0, 9), Shut(0)], &[Read(1, 3), Leave(1)], &[Die(1), Bury]], 420);
}

#[test]
fn a_reader_stalls() {
    let writes = [Write(0, 9), Write(0, 9), Write(0, 9)];
    all_orders(&[&writes, &[Read(1, 3), Read(1, 9)], &[Pass(PATIENCE), Pass(PATIENCE), Pass(PATIENCE)]], 560);
}

#[test]
fn an_end_goes_where_it_hears_no_doorbell() {
    all_orders(
        &[
            &[Write(0, 5), Write(0, 4)],
            &[Read(1, 3), Read(1, 3)],
            &[Away(1, true), Away(1, false)],
            &[Hold(true), Hold(false)],
        ],
        2520,
    );
}

/// A reader that takes nothing from a full ring for long enough has stalled: the kernel's larger buffers take over.
#[test]
fn a_full_ring_goes_to_the_kernel_in_time() {
    let mut world = World::new(Setup { room: 64, flip: Flip::NEVER });
    for (step, kernel) in [
        (Write(0, 20), 0),
        (Pass(PATIENCE - 1), 0),
        (Write(0, 5), 0),
        (Pass(1), 0),
        (Write(0, 5), 5),
        (Write(0, 5), 10),
    ] {
        world.apply(step);
        assert_eq!(world.senders[0].writer.tx.kernel(), kernel, "after {step:?}");
    }
    world.check_end();
}

/// Neither end is the kernel's alone while a ring has, or may get, bytes that the kernel has not.
#[test]
fn nobody_is_demoted_while_something_is_in_a_ring() {
    for steps in [&[Write(0, 3)][..], &[Write(0, 3), Read(1, 1), Keep(0)], &[Write(0, 8), Keep(0)]] {
        let mut world = World::new(Setup { room: 2, flip: Flip::NEVER });
        steps.iter().for_each(|step| world.apply(*step));
        assert!(!world.is_all_by_kernel(1), "what side 1 has not read is in a ring: {steps:?}");
        if steps.len() == 1 {
            assert!(!world.is_all_by_kernel(0), "side 0 writes into a ring");
        }
        world.check_end();
        assert!(world.is_all_by_kernel(0) && world.is_all_by_kernel(1));
    }
}

/// The model uses rings, leaves them for each reason, and uses them again.
#[test]
fn rings_are_used() {
    let mut world = World::new(Setup::PLAIN);
    // Number of bytes by ring, and by kernel. A full ring takes nothing until its reader has stalled.
    for (step, ring, kernel) in [
        (Write(0, 3), 3, 0),
        (Write(0, 9), 8, 0),
        (Pass(PATIENCE - 1), 8, 0),
        (Write(0, 1), 8, 0),
        (Read(1, 3), 8, 0),
        (Pass(1), 8, 0),
        (Write(0, 1), 9, 0),
    ] {
        world.apply(step);
        let tx = &world.senders[0].writer.tx;
        assert_eq!((tx.ring, tx.kernel()), (ring, kernel), "after {step:?}");
    }
    world.check_end();
    let mut flipping = World::new(Setup { flip: Flip::every(3), ..Setup::PLAIN });
    for _ in 0..50 {
        flipping.apply(Write(0, 2));
        flipping.apply(Read(1, 9));
    }
    let tx = &flipping.senders[0].writer.tx;
    assert!(tx.ended >= 10 && tx.ring >= 30 && tx.kernel() >= 30, "{tx:?}");
    flipping.check_end();
}
