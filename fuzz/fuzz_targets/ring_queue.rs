#![no_main]

#[path = "../bodies/engine.rs"]
mod engine;
#[path = "../bodies/input.rs"]
mod input;
#[path = "../bodies/memory.rs"]
mod memory;
#[path = "../bodies/ring_direction.rs"]
mod ring_direction;
#[path = "../bodies/ring_queue.rs"]
mod ring_queue;

libfuzzer_sys::fuzz_target!(|data: &[u8]| ring_queue::run(data));
