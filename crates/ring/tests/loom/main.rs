//! Models: every interleaving (up to a number of preemptions) of the few lines that everything rests on, under
//! the memory model of C11, with stale values and all.
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test --release -p sidestep-ring --test loom
//! ```
//!
//! Each model names the mutations of the code that it catches; they were tried one by one. A lost wake-up shows
//! as "deadlock", bytes read before they are visible as "causality violation".
//!
//! The checker takes a SeqCst access for AcqRel, and only `fence(SeqCst)` for a full barrier. x86-64 gives more:
//! there each locked instruction is one. So the models hold on weaker processors too, and need each fence that
//! those would need.
#![cfg(loom)]

mod explore;
mod freeze;
mod place;
mod space;
mod wake;
mod world;

use explore::explore;
