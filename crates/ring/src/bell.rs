//! The doorbell protocol: no system call while the consumer is awake, and no lost wake-up.
//!
//! ```text
//! producer                         consumer
//!   publish (ring, state)            asleep = 1
//!   full fence                       full fence
//!   set ready bit, summary           anything ready? -> stay awake
//!   asleep 1 -> 0 ? write eventfd    wait for the eventfd
//! ```
//! Either the producer sees `asleep`, or the consumer sees what was published: never neither.

use sidestep_abi::link::{Bell, WORDS};
use sidestep_abi::sync::{AtomicU32, Ordering, fence, fence_after_rmw, store_exchanged};

/// Tells the place that `slot` has something new. The caller has published before and fenced
/// ([`crate::Output::publish`], [`crate::Input::advance`]). True: the eventfd must be written.
#[inline]
#[must_use]
pub fn ring(bell: &Bell, slot: usize) -> bool {
    let word = (slot / 64) % WORDS;
    set_bit(&bell.ready[word], slot % 64);
    set_bit(&bell.summary, word);
    bell.asleep.load(Ordering::Relaxed) != 0 && bell.asleep.swap(0, Ordering::AcqRel) != 0
}

/// The eventfd could not be written: whoever sleeps there still does, and the next one to ring shall try too.
#[cold]
pub fn unrung(bell: &Bell) {
    bell.asleep.store(1, Ordering::SeqCst);
}

/// Sets a bit unless it is set: under load it mostly is, and the line stays shared.
#[inline]
fn set_bit(word: &sidestep_abi::sync::AtomicU64, bit: usize) {
    // Seen set after the fence: the consumer has not taken it yet, and will look at our news when it does.
    if word.load(Ordering::Relaxed) & (1 << bit) == 0 {
        // SYNC ready
        word.fetch_or(1 << bit, Ordering::SeqCst);
        fence_after_rmw();
    }
}

/// Takes all ready bits, calling `found` with each slot, which may look at the slot's state there and then.
#[inline]
pub fn take(bell: &Bell, mut found: impl FnMut(usize)) {
    if bell.summary.load(Ordering::Relaxed) == 0 {
        return;
    }
    let mut words = bell.summary.swap(0, Ordering::SeqCst);
    while words != 0 {
        let word = words.trailing_zeros() as usize;
        words &= words - 1;
        if word >= WORDS {
            continue; // the peer may have set anything
        }
        // SYNC ready
        let mut bits = bell.ready[word].swap(0, Ordering::SeqCst);
        fence_after_rmw(); // whoever saw these bits still set has published what `found` is about to look at
        while bits != 0 {
            found(word * 64 + bits.trailing_zeros() as usize);
            bits &= bits - 1;
        }
    }
}

/// Announces sleep on this bell. After the last one, [`settle`] must follow, and then a look at everything.
#[inline]
pub fn doze(bell: &Bell) {
    store_exchanged(&bell.asleep, 1);
}

/// The fence between [`doze`] and the second look.
#[inline]
pub fn settle() {
    fence(Ordering::SeqCst);
}

/// Whether producers ring here: nobody has rung since [`doze`].
#[inline]
pub fn is_armed(bell: &Bell) -> bool {
    bell.asleep.load(Ordering::SeqCst) != 0
}

/// Whether something is ready here.
#[inline]
pub fn is_ready(bell: &Bell) -> bool {
    bell.summary.load(Ordering::Relaxed) != 0
}

/// Awake again: producers need not ring.
#[inline]
pub fn rise(bell: &Bell) {
    store_exchanged(&bell.asleep, 0);
}

/// How many threads sleep at one place, which has a bell in each link: they share the bells' `asleep`.
#[derive(Debug, Default)]
pub struct Sleepers(AtomicU32);

impl Sleepers {
    #[cfg(not(loom))]
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Sleepers {
        Sleepers(AtomicU32::new(0))
    }

    /// One more: from now on producers ring. A look at everything must follow.
    pub fn lie_down<'b, B: Iterator<Item = &'b Bell>>(&self, bells: impl Fn() -> B) {
        self.0.fetch_add(1, Ordering::SeqCst);
        fence_after_rmw();
        bells().for_each(doze);
        settle();
    }

    /// One less. If others sleep here, or have just lain down, producers go on ringing. True: what they said
    /// meanwhile must be passed on to those others.
    #[must_use]
    pub fn get_up<'b, B: Iterator<Item = &'b Bell>>(&self, bells: impl Fn() -> B) -> bool {
        if self.0.fetch_sub(1, Ordering::SeqCst) == 1 {
            bells().for_each(rise);
        }
        // The word is one for all: whoever has lain down meanwhile may just have lost it.
        settle();
        self.stay_armed(bells)
    }

    /// For one who has taken news, or a signal, that others who sleep here may have been meant to get: producers go on
    /// ringing. True: there is news again, and the others must be told.
    #[must_use]
    pub fn stay_armed<'b, B: Iterator<Item = &'b Bell>>(&self, bells: impl Fn() -> B) -> bool {
        if !self.is_any() {
            return false;
        }
        bells().for_each(doze);
        settle();
        bells().any(is_ready)
    }

    /// Whether somebody sleeps here.
    pub fn is_any(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    /// In a forked child: the sleepers are the parent's.
    pub fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}
