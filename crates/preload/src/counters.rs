//! The page that this process shares with the broker: counters, and the broker's flags.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use sidestep_abi::Reason;
use sidestep_abi::page::Page;
use sidestep_ring::page;
use sidestep_sys::mem;

/// Memory of this process alone until the broker sends a page. That page is then mapped at the same address.
static PAGE: Page = Page::new();

#[inline]
pub fn page() -> &'static Page {
    &PAGE
}

/// Counts a reason.
pub fn count(reason: Reason) {
    page::count_reason(&PAGE, reason);
}

/// Of the bytes by ring, received and sent, those of connections that the stack carried. Only the report tells them.
static BY_STACK: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// Adds the bytes of a connection that has ended here: kernel rx, kernel tx, ring rx, ring tx. `by_stack`: behind the rings was the
/// stack.
pub fn add_bytes(bytes: [u64; 4], by_stack: bool) {
    page::count_bytes(&PAGE, bytes);
    if by_stack {
        for (count, n) in BY_STACK.iter().zip(&bytes[2..]) {
            count.fetch_add(*n, Relaxed);
        }
    }
}

/// Bytes of connections that the stack carried: received and sent.
pub fn by_stack() -> [u64; 2] {
    [BY_STACK[0].load(Relaxed), BY_STACK[1].load(Relaxed)]
}

/// Maps the broker's page over ours and keeps the counts. False: the memory is not a valid page.
pub fn share(memory: i32) -> bool {
    let len = size_of::<Page>();
    if mem::check_sealed(memory, len).is_err() {
        return false;
    }
    let Ok(mapped) = mem::file(memory, len) else { return false };
    // SAFETY: a fresh mapping of a sealed file of at least that size; all fields are atomics; unmapped below.
    let theirs = unsafe { &*mapped.cast::<Page>() };
    let fits = page::fits(theirs);
    if fits {
        page::carry_over(&PAGE, theirs);
    }
    // SAFETY: after its last use.
    unsafe { mem::unmap(mapped, len) };
    // SAFETY: PAGE is page-aligned, of that size, and holds only atomics, whose values were just carried over.
    fits && unsafe { mem::file_over((&raw const PAGE).cast_mut().cast(), memory, len) }.is_ok()
}

/// In a forked child: counts from zero, in memory of its own.
pub fn reset_in_child() {
    // SAFETY: as in `share`.
    let _ = unsafe { mem::anonymous_over((&raw const PAGE).cast_mut().cast(), size_of::<Page>()) };
    BY_STACK.iter().for_each(|count| count.store(0, Relaxed));
}

/// Whether the operator or the broker forbids this process to begin stretches of ring.
#[inline]
pub fn holds() -> bool {
    page::is_held(&PAGE)
}
