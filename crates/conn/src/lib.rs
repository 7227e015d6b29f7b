//! Which carrier the next byte of a connection takes.
//!
//! Each direction is a sequence of stretches, carried by the kernel or by a ring. Positions count its bytes from the beginning,
//! by either carrier. The writer begins a stretch of ring, and ends it by copies: it also sends the unread bytes by kernel, and
//! the reader discards the copies of bytes that it has read in the ring ([`sidestep_abi::link::COPYING`]). The reader can leave
//! at any time, at its exact position ([`sidestep_abi::link::FROZEN`]); the writer then sends the unread bytes by kernel. This
//! crate does no I/O and no waiting: the caller moves the bytes and reports how many.
// Some items have no documentation yet.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

mod around;
mod copies;
pub mod course;
mod holders;
pub mod phase;
mod rest;
mod rx;
pub mod spin;
mod stall;
mod tx;
pub mod worth;
mod writer;

pub use around::{Around, Ending, holder, is_all_by_kernel};
pub use course::Course;
pub use holders::Holders;
pub use phase::{Event, Phase};
pub use rest::Rest;
pub use rx::{Read, Rx};
pub use sidestep_ring::{Advance, Half, PeerViolation};
pub use spin::Spin;
pub use stall::Stall;
pub use tx::{Tx, Write};
pub use writer::{Flip, Pace, Space, Writer};
