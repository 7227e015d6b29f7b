//! Counters of this process, and what the broker says to it at any time, on one page that both have mapped.

use core::sync::atomic::Ordering::*;
use sidestep_abi::page::Page;
use sidestep_abi::{MAGIC, Reason, VERSION};
use sidestep_sys::mem;

/// Ours alone until the broker sends a page; then that is mapped here, at the same address.
static PAGE: Page = Page::new();

#[inline]
pub fn page() -> &'static Page {
    &PAGE
}

/// Counts a reason.
pub fn count(reason: Reason) {
    PAGE.reasons[reason as usize].fetch_add(1, Relaxed);
}

/// Adds the bytes of a connection that has ended here: kernel rx, kernel tx, ring rx, ring tx.
pub fn add_bytes(bytes: [u64; 4]) {
    let t = &PAGE.totals;
    for (word, n) in [&t.kernel_rx, &t.kernel_tx, &t.ring_rx, &t.ring_tx].into_iter().zip(bytes) {
        word.fetch_add(n, Relaxed);
    }
}

/// Maps the broker's page over ours, counters carried over. False: it is not what it should be.
pub fn share(memory: i32) -> bool {
    let len = size_of::<Page>();
    if mem::check_sealed(memory, len).is_err() {
        return false;
    }
    let Ok(mapped) = mem::file(memory, len) else { return false };
    // SAFETY: a fresh mapping of a sealed file of at least that size; all fields are atomics; unmapped below.
    let theirs = unsafe { &*mapped.cast::<Page>() };
    let fits = theirs.magic.load(Relaxed) == MAGIC && theirs.version.load(Relaxed) == VERSION;
    if fits {
        carry_over(theirs);
    }
    mem::unmap(mapped, len);
    // SAFETY: PAGE is page-aligned, of that size, and holds only atomics, whose values were just carried over.
    fits && unsafe { mem::file_over((&raw const PAGE).cast_mut().cast(), memory, len) }.is_ok()
}

fn carry_over(to: &Page) {
    let (a, b) = (&PAGE.totals, &to.totals);
    let totals = [
        (&a.seen, &b.seen),
        (&a.upgraded, &b.upgraded),
        (&a.returned, &b.returned),
        (&a.ring_rx, &b.ring_rx),
        (&a.ring_tx, &b.ring_tx),
        (&a.kernel_rx, &b.kernel_rx),
        (&a.kernel_tx, &b.kernel_tx),
    ];
    for (from, to) in totals.into_iter().chain(PAGE.reasons.iter().zip(&to.reasons)) {
        to.store(from.load(Relaxed), Relaxed);
    }
}

/// Starts again from zero, on memory of our own: after a fork, in the child.
pub fn forget() {
    // SAFETY: as in `share`.
    let _ = unsafe { mem::anonymous_over((&raw const PAGE).cast_mut().cast(), size_of::<Page>()) };
}

/// Whether operator and broker hold this process back from beginning stretches of ring.
#[inline]
pub fn holds() -> bool {
    PAGE.hold.load(Relaxed) != 0
}
