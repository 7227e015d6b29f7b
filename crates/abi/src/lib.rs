//! What two processes must agree on: memory that several processes map (`link`, `page`), and records on the control socket
//! (`msg`). Both carry a version. A process that finds one that it does not [speak](speaks) stays on the kernel.
#![no_std]
#![forbid(unsafe_code)]

pub mod env;
pub mod link;
pub mod msg;
pub mod page;
pub mod reason;
pub mod sync;

pub use reason::Reason;

/// Every change of a layout or a message increments it, once for a release. `--cfg sidestep_next` builds the next version with nothing
/// else changed, so that tests can run two releases side by side.
pub const VERSION: u32 = if cfg!(sidestep_next) { 9 } else { 8 };

/// Whether this release understands a version: its own, and the one before, so that broker and programs are upgraded one after the
/// other. A release that increments [`VERSION`] must treat what is of the version before as its predecessor does.
pub const fn speaks(version: u32) -> bool {
    version == VERSION || version == VERSION - 1
}

/// First word of every shared segment: a process recognises a wrong file before it reads anything else.
pub const MAGIC: u64 = u64::from_le_bytes(*b"SIDESTEP");
