//! The threads that sleep at one waiter. The waiter has a doorbell in each link, and its threads share the `armed` words.

use crate::doorbell::{arm, disarm, is_armed, is_ready};
use sidestep_abi::link::Doorbell;
use sidestep_abi::sync::{AtomicU32, Ordering, fence, fence_after_rmw};

/// Number of threads that sleep at one waiter.
#[derive(Debug, Default)]
pub struct Sleepers(AtomicU32);

impl Sleepers {
    /// Nobody sleeps yet.
    #[cfg(not(loom))]
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Sleepers {
        Sleepers(AtomicU32::new(0))
    }

    /// Adds a sleeper, and arms the doorbells. The caller must look at everything afterwards.
    pub fn arm<'b, B: Iterator<Item = &'b Doorbell>>(&self, doorbells: impl Fn() -> B) {
        self.0.fetch_add(1, Ordering::SeqCst);
        fence_after_rmw();
        arm(doorbells());
    }

    /// Removes a sleeper. The doorbells stay armed if `listening`, if another thread sleeps here, or if one has just armed
    /// them. True: there is news, and the caller must wake the other threads.
    #[must_use]
    pub fn disarm<'b, B: Iterator<Item = &'b Doorbell>>(&self, listening: bool, doorbells: impl Fn() -> B) -> bool {
        let was_last = self.0.fetch_sub(1, Ordering::SeqCst) == 1;
        if was_last && !listening {
            doorbells().for_each(disarm);
        }
        // All threads share one word, so the stores above may have undone the arming of a thread that has gone to sleep
        // meanwhile.
        fence(Ordering::SeqCst);
        self.stay_armed(doorbells)
    }

    /// Disarms the doorbells, unless a thread sleeps here. True: as [`Sleepers::disarm`].
    #[must_use]
    pub fn disarm_if_idle<'b, B: Iterator<Item = &'b Doorbell>>(&self, doorbells: impl Fn() -> B) -> bool {
        if !self.is_any() {
            if !doorbells().any(is_armed) {
                return false; // a thread that goes to sleep later arms the doorbells, and then looks
            }
            doorbells().filter(|doorbell| is_armed(doorbell)).for_each(disarm);
        }
        fence(Ordering::SeqCst);
        self.stay_armed(doorbells)
    }

    /// The caller has taken news, or a ring, that may have been for another sleeper: the doorbells stay armed for it. True:
    /// there is news again, and the caller must wake the other threads.
    #[must_use]
    pub fn stay_armed<'b, B: Iterator<Item = &'b Doorbell>>(&self, doorbells: impl Fn() -> B) -> bool {
        if !self.is_any() {
            return false;
        }
        arm(doorbells());
        doorbells().any(is_ready)
    }

    /// Whether a thread sleeps here.
    pub fn is_any(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    /// In a forked child: the sleepers are the parent's threads.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}
