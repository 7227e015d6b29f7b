#![no_main]

#[path = "../bodies/engine.rs"]
mod engine;
#[path = "../bodies/input.rs"]
mod input;
#[path = "../bodies/memory.rs"]
mod memory;
#[path = "../bodies/ring_direction.rs"]
mod ring_direction;
#[path = "../bodies/ring_hostile.rs"]
mod ring_hostile;

libfuzzer_sys::fuzz_target!(|data: &[u8]| ring_hostile::run(data));
