//! The doorbell protocol: no system call while the consumer is awake, and no lost wake-up.
//!
//! ```text
//! producer                         consumer
//!   publish (ring, state)            armed = 1
//!   full fence                       full fence
//!   set bit in `news`                anything ready? -> stay awake
//!   armed 1 -> 0 ? ring              wait until the doorbell rings
//! ```
//! Either the producer sees `armed`, or the consumer sees what was published. They cannot miss each other.

use sidestep_abi::link::{DIRECT, Doorbell, SideArea, WORDS};
use sidestep_abi::sync::{AtomicU64, Ordering, fence, fence_after_rmw, store_exchanged};

/// Marks `slot` as having news. The caller has published and fenced before ([`crate::Output::publish`],
/// [`crate::Input::advance`]), and calls `stamp` from here if the slot was not marked yet. True: the doorbell was armed, and
/// the caller must ring it.
#[inline]
#[must_use]
pub fn ring(doorbell: &Doorbell, slot: usize, stamp: impl FnOnce()) -> bool {
    mark(doorbell, slot, stamp);
    doorbell.armed.load(Ordering::Relaxed) != 0 && doorbell.armed.swap(0, Ordering::AcqRel) != 0
}

/// Rings for the broker: marks `slot`, and leaves the doorbell armed. If the sleeper misses the broker's ring, the peer's next
/// one still wakes it. True: the doorbell is armed, and the broker must ring it.
#[must_use]
pub fn ring_and_leave_armed(doorbell: &Doorbell, slot: usize) -> bool {
    fence(Ordering::SeqCst); // the broker's change of the slot comes before the look at the bits
    mark(doorbell, slot, || ());
    is_armed(doorbell)
}

#[inline]
fn mark(doorbell: &Doorbell, slot: usize, stamp: impl FnOnce()) {
    if slot < DIRECT {
        return set_bit(&doorbell.news, WORDS + slot, stamp);
    }
    let word = (slot / 64) % WORDS;
    set_bit(&doorbell.ready[word], slot % 64, stamp);
    set_bit(&doorbell.news, word, || ());
}

/// Whether `slot` is marked as having news.
pub fn is_marked(doorbell: &Doorbell, slot: usize) -> bool {
    let word = (slot / 64) % WORDS;
    let is_set = |word: &AtomicU64, bit: usize| word.load(Ordering::SeqCst) & 1 << bit != 0;
    if slot < DIRECT {
        is_set(&doorbell.news, WORDS + slot)
    } else {
        is_set(&doorbell.news, word) && is_set(&doorbell.ready[word], slot % 64)
    }
}

/// The caller of [`ring`] could not ring. The sleeper still sleeps, so the next producer must try again.
#[cold]
pub fn rearm(doorbell: &Doorbell) {
    doorbell.armed.store(1, Ordering::SeqCst);
}

/// Sets a bit unless it is set. Under load it is mostly set, and the cache line stays shared.
#[inline]
fn set_bit(word: &AtomicU64, bit: usize, first: impl FnOnce()) {
    // If the bit is set after the fence, the consumer has not polled yet, and finds our news when it does.
    if word.load(Ordering::Relaxed) & (1 << bit) == 0 {
        first();
        // SYNC ready
        word.fetch_or(1 << bit, Ordering::SeqCst);
        fence_after_rmw();
    }
}

/// Clears all marks and calls `found` with each marked slot. `found` may look at the slot at once.
#[inline]
pub fn poll(doorbell: &Doorbell, mut found: impl FnMut(usize)) {
    if doorbell.news.load(Ordering::Relaxed) == 0 {
        return;
    }
    // SYNC ready
    let news = doorbell.news.swap(0, Ordering::SeqCst);
    fence_after_rmw(); // a producer that saw these bits still set has published before `found` looks
    each_bit(news >> WORDS, &mut found);
    each_bit(news & WORDS_MASK, |word| {
        // SYNC ready
        let bits = doorbell.ready[word].swap(0, Ordering::SeqCst);
        fence_after_rmw();
        each_bit(bits, |bit| found(word * 64 + bit));
    });
}

/// Bits of [`Doorbell::news`] that stand for words.
const WORDS_MASK: u64 = (1 << WORDS) - 1;

/// Calls `each` with the number of each set bit, the lowest first.
#[inline]
fn each_bit(mut bits: u64, mut each: impl FnMut(usize)) {
    while bits != 0 {
        each(bits.trailing_zeros() as usize);
        bits &= bits - 1;
    }
}

/// Arms these doorbells: producers ring them from now on. The caller must look at everything afterwards.
#[inline]
pub fn arm<'b>(doorbells: impl Iterator<Item = &'b Doorbell>) {
    for doorbell in doorbells {
        // A producer that disarms an armed doorbell rings after that, and the consumer hears it.
        if doorbell.armed.load(Ordering::Relaxed) == 0 {
            store_exchanged(&doorbell.armed, 1);
        }
    }
    fence(Ordering::SeqCst);
}

/// Whether this doorbell is armed: no producer has rung it since it was armed.
#[inline]
pub fn is_armed(doorbell: &Doorbell) -> bool {
    doorbell.armed.load(Ordering::SeqCst) != 0
}

/// Whether some slot is marked.
#[inline]
pub fn is_ready(doorbell: &Doorbell) -> bool {
    doorbell.news.load(Ordering::Relaxed) != 0
}

/// Disarms this doorbell: whoever is awake looks by itself, and a ring would be a system call for nothing.
#[inline]
pub fn disarm(doorbell: &Doorbell) {
    store_exchanged(&doorbell.armed, 0);
}

/// Bitmap of the other side's waiters that the side of `area` can ring.
#[inline]
pub fn known(area: &SideArea) -> u64 {
    area.known.load(Ordering::Acquire)
}

/// From now on the side of `area` can ring the other side's `place`.
pub fn add_known(area: &SideArea, place: u32) {
    area.known.fetch_or(1 << place, Ordering::SeqCst);
}
