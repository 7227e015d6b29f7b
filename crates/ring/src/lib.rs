//! The byte ring of one direction, and the doorbell of one waiting place.
//!
//! Single producer, single consumer, bytes not messages. The indices lie in [`sidestep_abi::link`]; each end
//! keeps its own copy of what it has written there, because the peer may write any word at any time.
//!
//! SYNC labels: the two ends of a release/acquire pair carry the same label in their comments.
#![cfg_attr(not(test), no_std)]

pub mod bell;
pub mod data;
pub mod input;
pub mod output;
pub mod space;

pub use data::Data;
pub use input::{Advance, Input, Stretch};
pub use output::{Head, Output};

/// So often a step is tried again because the peer has moved meanwhile. No correct peer comes between that often.
pub const PATIENCE: u32 = 10_000;

/// The peer wrote a value that no correct peer can write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lie;
