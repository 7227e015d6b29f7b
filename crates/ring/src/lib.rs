//! The protocol of the shared memory: byte ring, doorbell, and every word beside them.
//!
//! A ring carries bytes, not messages, from one producer to one consumer. The words lie in [`sidestep_abi::link`] and
//! [`sidestep_abi::page`]. This crate has every function that reads or writes one of them, so that library, broker and models
//! run the same code. Each end keeps a copy of what it has written, because the peer may write any word at any time.
//!
//! SYNC labels: the two ends of a release/acquire pair carry the same label in their comments.
#![cfg_attr(not(test), no_std)]

pub mod counters;
pub mod data;
pub mod doorbell;
mod half;
pub mod header;
pub mod input;
pub mod output;
pub mod page;
mod sending;
pub mod side;
mod sleepers;
pub mod slot;
pub mod space;
mod switch;
mod violation;

pub use data::Data;
pub use half::Half;
pub use input::{Advance, Input, Stretch};
pub use output::{Head, Output};
pub use sleepers::Sleepers;
pub use violation::PeerViolation;

/// Most attempts at a step that fails because the peer changes a word. No correct peer changes a word that often.
pub const PATIENCE: u32 = 10_000;
