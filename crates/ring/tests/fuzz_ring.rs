//! The fuzz target `ring_hostile`, briefly and always alike.
#![cfg(not(loom))]

#[path = "../../../fuzz/bodies/input.rs"]
mod input;
#[path = "../../../fuzz/bodies/repeat.rs"]
mod repeat;
#[path = "../../../fuzz/bodies/ring_hostile.rs"]
mod ring_hostile;

#[test]
fn hostile_words() {
    repeat::repeat(300_000, 400, ring_hostile::run);
}
