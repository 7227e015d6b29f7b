//! What two processes must agree on.
//!
//! Everything here is either memory that several processes map (`link`, `page`) or bytes that travel over the
//! control socket (`msg`). Both carry [`VERSION`]; a mismatch means: stay on the kernel.
#![no_std]
#![forbid(unsafe_code)]

pub mod env;
pub mod link;
pub mod msg;
pub mod page;
pub mod reason;
pub mod sync;

pub use reason::Reason;

/// Grows with every change of a layout or a message. No two versions ever share memory.
/// (`--cfg sidestep_next` makes the next one, with nothing else changed: tests run two releases side by side.)
pub const VERSION: u32 = if cfg!(sidestep_next) { 7 } else { 6 };

/// First word of every shared segment, so that a wrong file is recognised before anything else is read.
pub const MAGIC: u64 = u64::from_le_bytes(*b"SIDESTEP");
