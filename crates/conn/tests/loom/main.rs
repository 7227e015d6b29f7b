//! Models of the state machine: the two ends of one direction, in every interleaving up to a number of
//! preemptions. How they are run and what they can see: `crates/ring/tests/loom/main.rs`.
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test --release -p sidestep-conn --test loom
//! ```
#![cfg(loom)]

mod begin;
mod carry;
#[path = "../../../ring/tests/loom/explore.rs"]
mod explore;
mod freeze;
mod phase;
mod world;

use explore::explore;
