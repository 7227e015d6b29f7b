//! The doorbell protocol: no system call while the consumer is awake, and no lost wake-up.
//!
//! ```text
//! producer                         consumer
//!   publish (ring, state)            asleep = 1
//!   full fence                       full fence
//!   set bit in `news`                anything ready? -> stay awake
//!   asleep 1 -> 0 ? ring             wait to be rung
//! ```
//! Either the producer sees `asleep`, or the consumer sees what was published: never neither.

use sidestep_abi::link::{Bell, DIRECT, WORDS};
use sidestep_abi::sync::{AtomicU32, AtomicU64, Ordering, fence, fence_after_rmw, store_exchanged};

/// Tells the place that `slot` has something new. The caller has published before and fenced
/// ([`crate::Output::publish`], [`crate::Input::advance`]). `stamp` is called first if that was not known there yet. True:
/// whoever sleeps there must be rung.
#[inline]
#[must_use]
pub fn ring(bell: &Bell, slot: usize, stamp: impl FnOnce()) -> bool {
    mark(bell, slot, stamp);
    bell.asleep.load(Ordering::Relaxed) != 0 && bell.asleep.swap(0, Ordering::AcqRel) != 0
}

/// The first half of [`ring`]: whoever sleeps there stays marked as asleep.
#[inline]
pub fn mark(bell: &Bell, slot: usize, stamp: impl FnOnce()) {
    if slot < DIRECT {
        return set_bit(&bell.news, WORDS + slot, stamp);
    }
    let word = (slot / 64) % WORDS;
    set_bit(&bell.ready[word], slot % 64, stamp);
    set_bit(&bell.news, word, || ());
}

/// Whether `slot` may have something new, as [`mark`] has left it.
pub fn is_marked(bell: &Bell, slot: usize) -> bool {
    let word = (slot / 64) % WORDS;
    let is_set = |word: &AtomicU64, bit: usize| word.load(Ordering::SeqCst) & 1 << bit != 0;
    if slot < DIRECT {
        is_set(&bell.news, WORDS + slot)
    } else {
        is_set(&bell.news, word) && is_set(&bell.ready[word], slot % 64)
    }
}

/// It could not be rung: whoever sleeps there still does, and the next one to ring shall try too.
#[cold]
pub fn unrung(bell: &Bell) {
    bell.asleep.store(1, Ordering::SeqCst);
}

/// Sets a bit unless it is set: under load it mostly is, and the line stays shared.
#[inline]
fn set_bit(word: &AtomicU64, bit: usize, first: impl FnOnce()) {
    // Seen set after the fence: the consumer has not taken it yet, and will look at our news when it does.
    if word.load(Ordering::Relaxed) & (1 << bit) == 0 {
        first();
        // SYNC ready
        word.fetch_or(1 << bit, Ordering::SeqCst);
        fence_after_rmw();
    }
}

/// Takes all ready bits, calling `found` with each slot, which may look at the slot's state there and then.
#[inline]
pub fn take(bell: &Bell, mut found: impl FnMut(usize)) {
    if bell.news.load(Ordering::Relaxed) == 0 {
        return;
    }
    // SYNC ready
    let news = bell.news.swap(0, Ordering::SeqCst);
    fence_after_rmw(); // whoever saw these bits still set has published what `found` is about to look at
    each_bit(news >> WORDS, &mut found);
    each_bit(news & WORDS_MASK, |word| {
        // SYNC ready
        let bits = bell.ready[word].swap(0, Ordering::SeqCst);
        fence_after_rmw();
        each_bit(bits, |bit| found(word * 64 + bit));
    });
}

/// Bits of [`Bell::news`] that stand for words.
const WORDS_MASK: u64 = (1 << WORDS) - 1;

#[inline]
fn each_bit(mut bits: u64, mut each: impl FnMut(usize)) {
    while bits != 0 {
        each(bits.trailing_zeros() as usize);
        bits &= bits - 1;
    }
}

/// Has producers ring this bell from now on. After the last one, [`settle`] must follow, and then a look at everything.
#[inline]
pub fn doze(bell: &Bell) {
    // Seen armed: whoever disarms it rings after that, and is heard.
    if bell.asleep.load(Ordering::Relaxed) == 0 {
        store_exchanged(&bell.asleep, 1);
    }
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
    bell.news.load(Ordering::Relaxed) != 0
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

    /// One less. `listening`: producers go on ringing. They do, too, if others sleep here, or have just lain down. True:
    /// what they said meanwhile must be passed on to those others.
    #[must_use]
    pub fn get_up<'b, B: Iterator<Item = &'b Bell>>(&self, listening: bool, bells: impl Fn() -> B) -> bool {
        let was_last = self.0.fetch_sub(1, Ordering::SeqCst) == 1;
        if was_last && !listening {
            bells().for_each(rise);
        }
        // The word is one for all: whoever has lain down meanwhile may just have lost it.
        settle();
        self.stay_armed(bells)
    }

    /// Nobody need ring for the sake of those who are awake. True: as [`Sleepers::get_up`].
    #[must_use]
    pub fn hush<'b, B: Iterator<Item = &'b Bell>>(&self, bells: impl Fn() -> B) -> bool {
        if !self.is_any() {
            if !bells().any(is_armed) {
                return false; // whoever lies down meanwhile arms the bells, and looks, after that
            }
            bells().filter(|bell| is_armed(bell)).for_each(rise);
        }
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
