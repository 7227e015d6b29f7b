//! What one side has carried on one connection. `status` shows it, and the peer's writer sees the reader's progress in it.

use sidestep_abi::Reason;
use sidestep_abi::link::Counters;
use sidestep_abi::sync::Ordering::Relaxed;

/// Values of the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Bytes sent by kernel.
    pub kernel_tx: u64,
    /// Bytes received by kernel.
    pub kernel_rx: u64,
    /// Bytes sent by ring.
    pub ring_tx: u64,
    /// Bytes received by ring.
    pub ring_rx: u64,
    /// A reason code; the peer may write any other value. 0: none.
    pub reason: u32,
}

impl Counted {
    /// Bytes received, by either carrier.
    pub fn received(&self) -> u64 {
        self.kernel_rx.wrapping_add(self.ring_rx)
    }
}

/// The present values. They are loaded one after the other.
pub fn load(counters: &Counters) -> Counted {
    Counted {
        kernel_tx: counters.kernel_tx.load(Relaxed),
        kernel_rx: counters.kernel_rx.load(Relaxed),
        ring_tx: counters.ring_tx.load(Relaxed),
        ring_rx: counters.ring_rx.load(Relaxed),
        reason: counters.reason.load(Relaxed),
    }
}

/// Bytes sent by kernel so far.
#[inline]
pub fn set_kernel_tx(counters: &Counters, bytes: u64) {
    counters.kernel_tx.store(bytes, Relaxed);
}

/// Bytes received by kernel so far.
#[inline]
pub fn set_kernel_rx(counters: &Counters, bytes: u64) {
    counters.kernel_rx.store(bytes, Relaxed);
}

/// Bytes sent by ring so far.
#[inline]
pub fn set_ring_tx(counters: &Counters, bytes: u64) {
    counters.ring_tx.store(bytes, Relaxed);
}

/// Bytes received by ring so far.
#[inline]
pub fn set_ring_rx(counters: &Counters, bytes: u64) {
    counters.ring_rx.store(bytes, Relaxed);
}

/// Stores why this side last kept the connection on the kernel.
pub fn set_reason(counters: &Counters, reason: Reason) {
    counters.reason.store(reason as u32, Relaxed);
}
