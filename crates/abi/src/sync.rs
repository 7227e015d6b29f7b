//! The atomics of all crates: those of `core`, or loom's when built with `--cfg loom`.

#[cfg(not(loom))]
pub use core::hint::spin_loop;
#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub use loom::hint::spin_loop;
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Orders an atomic read-modify-write that has just been done (SeqCst) before every later load.
///
/// On x86-64 the locked instruction itself is that barrier, and a second one would only cost time.
#[inline(always)]
pub fn fence_after_rmw() {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    fence(Ordering::SeqCst);
}

/// A relaxed store to a word that the other side changes only by exchanges.
///
/// An exchange directly follows, in the word's modification order, the value that it has read: no store comes between the two.
/// Loom assumes that only of exchanges, so under loom this is an exchange.
#[inline(always)]
pub fn store_exchanged(word: &AtomicU32, value: u32) {
    #[cfg(not(loom))]
    word.store(value, Ordering::Relaxed);
    #[cfg(loom)]
    word.swap(value, Ordering::Relaxed);
}
