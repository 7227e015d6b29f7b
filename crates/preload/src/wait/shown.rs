//! Whether a nested set has been made readable for what is ready in it now.

use crate::critical::Lock;
use crate::thread;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use sidestep_sys::lock::Taken;

/// The set's doorbell has rung for what is ready now, and has been neither hushed nor heard in the set since. What one thread finds out
/// about that is wrong once another has armed the doorbell: one at a time looks, and acts on it.
pub struct Shown {
    is: AtomicBool,
    lock: Lock,
}

impl Shown {
    pub const fn new() -> Shown {
        Shown { is: AtomicBool::new(false), lock: Lock::new() }
    }

    /// Runs `work` while no other thread does so.
    pub fn alone(&self, work: impl FnOnce()) {
        let taken = self.lock.lock(thread::tid());
        work();
        if taken != Taken::Reentered {
            self.lock.unlock();
        }
    }

    /// Whether this was unknown so far.
    pub fn note(&self) -> bool {
        !self.is.swap(true, Relaxed)
    }

    pub fn forget(&self) {
        self.is.store(false, Relaxed);
    }

    /// In a forked child: the thread that was at work does not exist.
    pub fn reset_in_child(&self) {
        self.lock.reset_in_child();
    }
}
