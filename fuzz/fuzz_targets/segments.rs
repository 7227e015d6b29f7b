#![no_main]

#[path = "../bodies/input.rs"]
mod input;
#[path = "../bodies/segments.rs"]
mod segments;
#[path = "../bodies/tcp_end.rs"]
mod tcp_end;
#[path = "../bodies/tcp_store.rs"]
mod tcp_store;

libfuzzer_sys::fuzz_target!(|data: &[u8]| segments::run(data));
