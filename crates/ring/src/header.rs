//! The first words of a link, by which a member recognizes it.

use sidestep_abi::link::{Header, SLOTS};
use sidestep_abi::sync::Ordering::{Relaxed, SeqCst};
use sidestep_abi::{MAGIC, speaks};

/// Writes the header of a new link. `version`: one that both its members speak. For the broker.
pub fn init(header: &Header, version: u32, ring_size: u32) {
    header.slots.store(SLOTS as u32, Relaxed);
    header.ring_size.store(ring_size, Relaxed);
    header.version.store(version, Relaxed);
    header.magic.store(MAGIC, SeqCst);
}

/// Whether this is a link of a version that this release speaks.
pub fn fits(header: &Header) -> bool {
    header.magic.load(Relaxed) == MAGIC && speaks(header.version.load(Relaxed))
}
