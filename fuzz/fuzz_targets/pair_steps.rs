#![no_main]

#[path = "../bodies/engine.rs"]
mod engine;
#[path = "../bodies/input.rs"]
mod input;
#[path = "../bodies/memory.rs"]
mod memory;
#[path = "../bodies/pair_checks.rs"]
mod pair_checks;
#[path = "../bodies/pair_kernel.rs"]
mod pair_kernel;
#[path = "../bodies/pair_plain.rs"]
mod pair_plain;
#[path = "../bodies/pair_receiver.rs"]
mod pair_receiver;
#[path = "../bodies/pair_sender.rs"]
mod pair_sender;
#[path = "../bodies/pair_steps.rs"]
mod pair_steps;
#[path = "../bodies/pair_wire.rs"]
mod pair_wire;
#[path = "../bodies/pair_world.rs"]
mod pair_world;

libfuzzer_sys::fuzz_target!(|data: &[u8]| pair_world::run(data));
