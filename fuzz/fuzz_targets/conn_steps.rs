#![no_main]

#[path = "../bodies/conn_direction.rs"]
mod conn_direction;
#[path = "../bodies/conn_steps.rs"]
mod conn_steps;
#[path = "../bodies/conn_world.rs"]
mod conn_world;
#[path = "../bodies/engine.rs"]
mod engine;
#[path = "../bodies/input.rs"]
mod input;
#[path = "../bodies/memory.rs"]
mod memory;

libfuzzer_sys::fuzz_target!(|data: &[u8]| conn_steps::run(data));
