//! The few lines on which everything rests, in threads of their own. `cargo test` runs them on real threads, many times. As
//! models they run in every interleaving (up to a number of preemptions) under the memory model of C11, stale values included:
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test --release -p sidestep-ring --test loom
//! ```
//!
//! Each body names the mutations of the code that its model catches; they were tried one by one. A lost wake-up shows as
//! "deadlock", bytes read before they are visible as "causality violation".
//!
//! The checker takes a SeqCst access for AcqRel, and only `fence(SeqCst)` for a full barrier. x86-64 gives more: there each
//! locked instruction is one. So the models hold on weaker processors too, and need each fence that those would need.

#[path = "../../../../fuzz/bodies/engine.rs"]
mod engine;
mod freeze;
#[path = "../../../../fuzz/bodies/memory.rs"]
mod memory;
mod parked;
mod place;
#[path = "../../../../fuzz/bodies/ring_direction.rs"]
mod ring_direction;
mod sleep;
mod space;
mod wake;

use ring_direction::Direction;
use sidestep_ring::{Advance, Input, Output};

/// Bytes of the ring in every model.
const SIZE: usize = 2;
/// Where every stretch begins. Not at 0, so that a word which was never written is no valid position.
const START: u64 = 1;

/// Writes and publishes the next byte: its value is its position.
fn put(direction: &Direction, output: &mut Output) {
    let value = output.tail as u8;
    assert_eq!(direction.write(output, &[value]), 1, "there is space");
}

/// Reads the next of the bytes that `available` has reported.
fn get(direction: &Direction, input: &mut Input) -> Advance {
    let pos = input.pos;
    let (bytes, advance) = direction.read(input, 1).expect("no violation");
    if advance == Advance::Done {
        assert_eq!(bytes, [pos as u8], "the byte at {pos}");
    }
    advance
}

/// Reads everything there is. True: there was something.
fn drain(direction: &Direction, input: &mut Input) -> bool {
    let n = input.available(&direction.writer, SIZE).expect("no violation");
    for _ in 0..n {
        assert_eq!(get(direction, input), Advance::Done);
    }
    n > 0
}
