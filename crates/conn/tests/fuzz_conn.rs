//! The fuzz target `conn_steps`, briefly and always alike.
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
#[path = "../../../fuzz/bodies/repeat.rs"]
mod repeat;

#[test]
fn any_steps() {
    repeat::repeat(150_000, 600, conn_steps::run);
}
