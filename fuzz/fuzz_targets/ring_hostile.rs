#![no_main]

#[path = "../bodies/input.rs"]
mod input;
#[path = "../bodies/ring_hostile.rs"]
mod ring_hostile;

libfuzzer_sys::fuzz_target!(|data: &[u8]| ring_hostile::run(data));
