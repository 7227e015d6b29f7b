//! Two ends of a connection, with two threads each, beside a plain model of TCP: every order of some small programs, and many
//! orders of large ones.
#![cfg(not(loom))]

#[path = "../../../fuzz/bodies/engine.rs"]
mod engine;
#[path = "../../../fuzz/bodies/input.rs"]
mod input;
#[path = "../../../fuzz/bodies/memory.rs"]
mod memory;
#[path = "../../../fuzz/bodies/pair_checks.rs"]
mod pair_checks;
#[path = "../../../fuzz/bodies/pair_kernel.rs"]
mod pair_kernel;
#[path = "../../../fuzz/bodies/pair_plain.rs"]
mod pair_plain;
#[path = "../../../fuzz/bodies/pair_receiver.rs"]
mod pair_receiver;
#[path = "../../../fuzz/bodies/pair_sender.rs"]
mod pair_sender;
#[path = "../../../fuzz/bodies/pair_steps.rs"]
mod pair_steps;
#[path = "../../../fuzz/bodies/pair_wire.rs"]
mod pair_wire;
#[path = "../../../fuzz/bodies/pair_world.rs"]
mod pair_world;
#[path = "../../../fuzz/bodies/repeat.rs"]
mod repeat;

use input::Input;
use pair_sender::PATIENCE;
use pair_steps::{RING, Setup, Step, Step::*, every_order};
use pair_world::{World, as_plain_tcp};
use proptest::prelude::*;
use sidestep_conn::Flip;

fn step() -> impl Strategy<Value = Step> {
    any::<[u8; 4]>().prop_map(|bytes| Step::from_bytes(&mut Input::new(&bytes)))
}

fn setup() -> impl Strategy<Value = Setup> {
    any::<[u8; 4]>().prop_map(|bytes| Setup::from_bytes(&mut Input::new(&bytes)))
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
    repeat::repeat(20_000, 600, pair_world::run);
}

/// Every order of these threads' steps, with a kernel that takes little, as much as a ring, or everything, or whose receiver takes
/// little of that.
fn all_orders(threads: &[&[Step]], orders: u64) {
    for (room, window) in [(2, 2), (RING, RING), (64, 64), (RING, 2)] {
        for flip in [Flip::NEVER, Flip::every(3)] {
            let setup = Setup { room, window, flip };
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

/// It wants no further stretch, as it writes nothing more, and takes copies like any other reader.
#[test]
fn a_half_closed_reader_leaves() {
    let reads = [Read(1, 2), Leave(1), Read(1, 9)];
    all_orders(&[&[Write(0, 6), Write(0, 2), Write(0, 1)], &[Shut(1), Demote(1)], &reads], 560);
    all_orders(&[&[Write(0, 6), Write(0, 2), Shut(0)], &[Shut(1), Demote(1)], &reads], 560);
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
    let reader = [Read(1, 1), Leave(1), Deputise(1, 6), Read(1, 8), DieOverSending(1)];
    all_orders(&[&[Write(0, 5), Serve(0), Write(0, 1)], &reader], 56);
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

#[test]
fn a_writer_resets_at_any_moment() {
    let reader = [Read(1, 2), Write(1, 2), Read(1, 9)];
    all_orders(&[&[Write(0, 3), Write(0, 9), Shut(0)], &reader, &[Linger(0), Close(0)]], 560);
    all_orders(&[&[Write(0, 9), Keep(0), Write(0, 3)], &[Read(1, 2), Leave(1), Read(1, 9)], &[Linger(0), Die(0)]], 560);
}

/// A writer that cannot get rid of its bytes resets the connection in the end.
#[test]
fn a_close_gives_up() {
    let reader = [Read(1, 2), Leave(1), Read(1, 5), Deputise(1, 2)];
    all_orders(&[&[Write(0, 9), Close(0), Serve(0), GiveUp(0)], &reader], 70);
}

#[test]
fn a_reader_closes_with_bytes_unread() {
    let reader = [Read(1, 2), Leave(1), Close(1)];
    all_orders(&[&[Write(0, 5), Serve(0), Write(0, 5)], &reader, &[Hold(true), Write(1, 2)]], 560);
    all_orders(
        &[&[Write(0, 5), Serve(0), Write(0, 5)], &[Read(1, 2), Shut(1), Close(1)], &[Read(0, 1), Read(0, 1)]],
        560,
    );
}

#[test]
fn the_connection_is_cut_at_any_moment() {
    let reader = [Read(1, 3), Leave(1), Deputise(1, 2), Read(1, 9)];
    all_orders(&[&[Write(0, 9), Serve(0), Write(0, 2)], &reader, &[Cut]], 280);
    all_orders(&[&[Write(0, 9), Shut(0), Read(0, 1)], &[Read(1, 3), Write(1, 9), Write(1, 1)], &[Cut]], 140);
}

#[test]
fn a_reader_shuts_its_side_and_goes_on_reading() {
    let reader = [ShutRead(1), Read(1, 3), Leave(1), Read(1, 9)];
    all_orders(&[&[Write(0, 9), Serve(0), Write(0, 2)], &reader, &[Hold(true), Hold(false)]], 1260);
    all_orders(&[&[Write(0, 9), Write(0, 9), Shut(0)], &reader[..2], &[ShutRead(0), Write(1, 3), Read(0, 1)]], 560);
}

/// What has come before can be read; what comes after that resets the connection.
#[test]
fn a_reader_shuts_both_ways() {
    let writer = [Write(0, 6), Write(0, 2), Serve(0)];
    all_orders(&[&writer, &[Read(1, 2), ShutBoth(1), Read(1, 9)], &[Hold(true), Hold(false)]], 560);
    all_orders(&[&writer, &[Read(1, 2), Write(1, 3), Shut(1), ShutRead(1)], &[Shut(0)]], 280);
    // Bytes of the kernel come before those of the ring.
    let writer = [Hold(true), Write(0, 2), Hold(false), Write(0, 3), Write(0, 1)];
    all_orders(&[&writer, &[Read(1, 1), ShutBoth(1), Read(1, 9)]], 56);
}

/// A reader that takes nothing from a full ring for long enough has stalled: the kernel's larger buffers take over.
#[test]
fn a_full_ring_goes_to_the_kernel_in_time() {
    let mut world = World::new(Setup { room: 64, window: 64, flip: Flip::NEVER });
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
        let mut world = World::new(Setup { room: 2, window: 2, flip: Flip::NEVER });
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
