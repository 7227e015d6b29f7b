//! The fuzz targets `ring_hostile` and `ring_queue`, briefly and always alike.
#![cfg(not(loom))]

#[path = "../../../fuzz/bodies/engine.rs"]
mod engine;
#[path = "../../../fuzz/bodies/input.rs"]
mod input;
#[path = "../../../fuzz/bodies/memory.rs"]
mod memory;
#[path = "../../../fuzz/bodies/repeat.rs"]
mod repeat;
#[path = "../../../fuzz/bodies/ring_direction.rs"]
mod ring_direction;
#[path = "../../../fuzz/bodies/ring_hostile.rs"]
mod ring_hostile;
#[path = "../../../fuzz/bodies/ring_queue.rs"]
mod ring_queue;

#[test]
fn hostile_words() {
    repeat::repeat(300_000, 400, ring_hostile::run);
}

#[test]
fn queue_of_bytes() {
    repeat::repeat(20_000, 400, ring_queue::run);
}
