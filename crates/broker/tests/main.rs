//! All integration tests of this crate, linked once.

mod activation;
mod blocking;
mod common;
#[path = "../../../fuzz/bodies/config.rs"]
mod config;
mod daemon;
mod domains;
mod doorbells;
mod file_size;
mod fuzz_config;
mod hold;
mod hostile;
mod in_flight;
mod leaks;
mod lifecycle;
mod limits;
mod log_format;
mod matching;
mod namespaces;
mod pace;
mod pairing;
mod passive;
mod places;
mod pods;
#[path = "common/process.rs"]
mod process;
mod recheck;
mod redirect;
mod reload;
#[path = "../../../fuzz/bodies/repeat.rs"]
mod repeat;
mod reuse;
mod sleep;
mod stack;
mod status;
mod strangers;
mod user_namespaces;
