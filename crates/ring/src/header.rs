//! The first words of a link, by which a member recognizes it.

use sidestep_abi::link::{Header, SLOTS};
use sidestep_abi::sync::Ordering::{Relaxed, SeqCst};
use sidestep_abi::{MAGIC, VERSION};

/// Writes the header of a new link. For the broker.
pub fn init(header: &Header, ring_size: u32) {
    header.slots.store(SLOTS as u32, Relaxed);
    header.ring_size.store(ring_size, Relaxed);
    header.version.store(VERSION, Relaxed);
    header.magic.store(MAGIC, SeqCst);
}

/// Whether this is a link of this version.
pub fn fits(header: &Header) -> bool {
    header.magic.load(Relaxed) == MAGIC && header.version.load(Relaxed) == VERSION
}
