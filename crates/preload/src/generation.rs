//! Number of forks between the first process of a family and this process. What was made in an earlier generation is inherited.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

static GENERATION: AtomicU32 = AtomicU32::new(0);

pub fn get() -> u32 {
    GENERATION.load(Relaxed)
}

/// In a forked child.
pub fn next() {
    GENERATION.fetch_add(1, Relaxed);
}
