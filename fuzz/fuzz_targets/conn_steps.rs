#![no_main]

#[path = "../bodies/conn_steps.rs"]
mod conn_steps;
#[path = "../bodies/conn_world.rs"]
mod conn_world;
#[path = "../bodies/input.rs"]
mod input;

libfuzzer_sys::fuzz_target!(|data: &[u8]| conn_steps::run(data));
