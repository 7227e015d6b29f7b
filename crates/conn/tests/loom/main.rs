//! The two ends of one direction in threads of their own: real ones, or with `--cfg loom` in every interleaving up to a number
//! of preemptions. How to run the models, and what they can see: `crates/ring/tests/loom/main.rs`.

mod begin;
mod carry;
#[path = "../../../../fuzz/bodies/conn_direction.rs"]
mod conn_direction;
#[path = "../../../../fuzz/bodies/engine.rs"]
mod engine;
mod freeze;
mod holders;
#[path = "../../../../fuzz/bodies/input.rs"]
mod input;
#[path = "../../../../fuzz/bodies/memory.rs"]
mod memory;
mod pair;
#[path = "../../../../fuzz/bodies/pair_checks.rs"]
mod pair_checks;
#[path = "../../../../fuzz/bodies/pair_kernel.rs"]
mod pair_kernel;
#[path = "../../../../fuzz/bodies/pair_plain.rs"]
mod pair_plain;
#[path = "../../../../fuzz/bodies/pair_receiver.rs"]
mod pair_receiver;
#[path = "../../../../fuzz/bodies/pair_sender.rs"]
mod pair_sender;
#[path = "../../../../fuzz/bodies/pair_steps.rs"]
mod pair_steps;
#[path = "../../../../fuzz/bodies/pair_wire.rs"]
mod pair_wire;
#[path = "../../../../fuzz/bodies/pair_world.rs"]
mod pair_world;
mod phase;
mod restore;

use conn_direction::Direction;
use sidestep_conn::{Rx, Tx};

/// Bytes of the ring.
const SIZE: usize = 2;
/// Position at which the connection was attached. Not 0, so that a word which was never written is no valid position.
const START: u64 = 1;

/// Writes one byte. False: the ring is full.
fn write(direction: &Direction, tx: &mut Tx) -> bool {
    direction.write(tx, 1, || ()).expect("no violation") == 1
}

/// Reads one byte, if there is one. False: there was none.
fn read(direction: &Direction, rx: &mut Rx) -> bool {
    direction.read(rx, 1, || ()).expect("no violation") == 1
}
