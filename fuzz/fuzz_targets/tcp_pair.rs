#![no_main]

#[path = "../bodies/input.rs"]
mod input;
#[path = "../bodies/tcp_end.rs"]
mod tcp_end;
#[path = "../bodies/tcp_pair.rs"]
mod tcp_pair;
#[path = "../bodies/tcp_store.rs"]
mod tcp_store;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    tcp_pair::run(data, tcp_pair::Trouble::War);
});
