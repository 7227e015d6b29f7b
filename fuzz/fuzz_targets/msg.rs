#![no_main]

#[path = "../bodies/msg.rs"]
mod msg;

libfuzzer_sys::fuzz_target!(|data: &[u8]| msg::run(data));
