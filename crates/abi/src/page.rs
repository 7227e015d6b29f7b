//! The page that one process shares with the broker: a count of control messages, the hold, and the process's counters.
//! `sidestep-ring` has the functions that read and write it.

use crate::reason::REASONS;
use crate::sync::{AtomicU32, AtomicU64};

/// 4096 bytes. Both sides map it. The broker writes the words before `earlier`, the process that word and the counters.
#[repr(C, align(4096))]
pub struct Page {
    /// [`crate::MAGIC`].
    pub magic: AtomicU64,
    /// [`crate::VERSION`] of the process.
    pub version: AtomicU32,
    /// The broker increments it after it has sent records or has changed a slot.
    pub pending: AtomicU32,
    /// 1: no connection of this process may begin a stretch of ring.
    pub hold: AtomicU32,
    /// Number of connections of the process that earlier brokers have paired, and that still have a slot.
    pub earlier: AtomicU32,
    _pad: [u32; 10],
    /// Counters of the process.
    pub totals: Totals,
    /// By reason code: how often the process gave that reason.
    pub reasons: [AtomicU64; REASONS],
}

/// Counters of a process since it started (or since the fork that made it).
#[repr(C)]
pub struct Totals {
    /// TCP connections made by connect() or accept().
    pub seen: AtomicU64,
    /// ... of which at least one direction went by ring.
    pub upgraded: AtomicU64,
    /// ... and came back to the kernel at least once before their end.
    pub returned: AtomicU64,
    /// Bytes received by ring.
    pub ring_rx: AtomicU64,
    /// Bytes sent by ring.
    pub ring_tx: AtomicU64,
    /// Bytes received by kernel, on connections that were upgraded.
    pub kernel_rx: AtomicU64,
    /// Bytes sent by kernel, on connections that were upgraded.
    pub kernel_tx: AtomicU64,
}

#[cfg(not(loom))]
impl Page {
    /// All zero, like a fresh mapping.
    #[allow(clippy::new_without_default)] // a page is only ever a static
    pub const fn new() -> Page {
        #[allow(clippy::declare_interior_mutable_const)] // a pattern to copy, not a value to share
        const ZERO: AtomicU64 = AtomicU64::new(0);
        Page {
            magic: ZERO,
            version: AtomicU32::new(0),
            pending: AtomicU32::new(0),
            hold: AtomicU32::new(0),
            earlier: AtomicU32::new(0),
            _pad: [0; 10],
            totals: Totals {
                seen: ZERO,
                upgraded: ZERO,
                returned: ZERO,
                ring_rx: ZERO,
                ring_tx: ZERO,
                kernel_rx: ZERO,
                kernel_tx: ZERO,
            },
            reasons: [ZERO; REASONS],
        }
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Page>() == 4096);
