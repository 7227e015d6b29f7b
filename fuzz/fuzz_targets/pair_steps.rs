#![no_main]

#[path = "../bodies/engine.rs"]
mod engine;
#[path = "../bodies/input.rs"]
mod input;
#[path = "../bodies/memory.rs"]
mod memory;
#[path = "../bodies/pair_ends.rs"]
mod pair_ends;
#[path = "../bodies/pair_steps.rs"]
mod pair_steps;
#[path = "../bodies/pair_wire.rs"]
mod pair_wire;

libfuzzer_sys::fuzz_target!(|data: &[u8]| pair_steps::run(data));
