//! The page that a process shares with the broker.

use sidestep_abi::page::{Page, Totals};
use sidestep_abi::sync::AtomicU64;
use sidestep_abi::sync::Ordering::{Acquire, Relaxed, Release, SeqCst};
use sidestep_abi::{MAGIC, Reason, speaks};

/// Writes the page of a new member, which speaks this version. For the broker.
pub fn init(page: &Page, version: u32, hold: bool) {
    page.hold.store(u32::from(hold), Relaxed);
    page.version.store(version, Relaxed);
    page.magic.store(MAGIC, Release);
}

/// Whether this is a page of a version that this release speaks.
pub fn fits(page: &Page) -> bool {
    page.magic.load(Relaxed) == MAGIC && speaks(page.version.load(Relaxed))
}

/// Sets whether all connections of the process are held on the kernel. For the broker.
pub fn set_hold(page: &Page, hold: bool) {
    page.hold.store(u32::from(hold), SeqCst);
}

/// Whether the broker holds all connections of the process on the kernel.
#[inline]
pub fn is_held(page: &Page) -> bool {
    page.hold.load(Relaxed) != 0
}

/// Sets how many connections of the process earlier brokers have paired. For the process.
pub fn set_earlier(page: &Page, connections: u32) {
    page.earlier.store(connections, Relaxed);
}

/// How many connections of the process earlier brokers have paired, as the process says.
pub fn earlier(page: &Page) -> u32 {
    page.earlier.load(Relaxed)
}

/// Announces that the broker has sent a record, or has changed a slot.
pub fn announce(page: &Page) {
    // SYNC pending
    page.pending.fetch_add(1, Release);
}

/// Number of the broker's announcements.
#[inline]
pub fn announced(page: &Page) -> u32 {
    // SYNC pending
    page.pending.load(Acquire)
}

/// Values of [`Totals`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// TCP connections made by connect() or accept().
    pub seen: u64,
    /// ... of which at least one direction went by ring.
    pub upgraded: u64,
    /// ... and came back to the kernel at least once before their end.
    pub returned: u64,
    /// Bytes received by ring.
    pub ring_rx: u64,
    /// Bytes sent by ring.
    pub ring_tx: u64,
    /// Bytes received by kernel.
    pub kernel_rx: u64,
    /// Bytes sent by kernel.
    pub kernel_tx: u64,
}

/// The present values. They are loaded one after the other.
pub fn totals(page: &Page) -> Counted {
    let t = &page.totals;
    Counted {
        seen: t.seen.load(Relaxed),
        upgraded: t.upgraded.load(Relaxed),
        returned: t.returned.load(Relaxed),
        ring_rx: t.ring_rx.load(Relaxed),
        ring_tx: t.ring_tx.load(Relaxed),
        kernel_rx: t.kernel_rx.load(Relaxed),
        kernel_tx: t.kernel_tx.load(Relaxed),
    }
}

/// How often each reason was given, by code.
pub fn reasons(page: &Page) -> impl Iterator<Item = (usize, u64)> {
    page.reasons.iter().map(|n| n.load(Relaxed)).enumerate()
}

/// How often this reason was given.
pub fn count_of(page: &Page, reason: Reason) -> u64 {
    page.reasons[reason as usize].load(Relaxed)
}

/// Counts this reason.
pub fn count_reason(page: &Page, reason: Reason) {
    page.reasons[reason as usize].fetch_add(1, Relaxed);
}

/// Counts a TCP connection that was made.
pub fn count_seen(page: &Page) {
    page.totals.seen.fetch_add(1, Relaxed);
}

/// Counts a connection that was upgraded.
pub fn count_upgraded(page: &Page) {
    page.totals.upgraded.fetch_add(1, Relaxed);
}

/// Counts an upgraded connection that came back to the kernel.
pub fn count_returned(page: &Page) {
    page.totals.returned.fetch_add(1, Relaxed);
}

/// Adds the bytes of a connection: kernel rx, kernel tx, ring rx, ring tx.
pub fn count_bytes(page: &Page, bytes: [u64; 4]) {
    let t = &page.totals;
    for (word, n) in [&t.kernel_rx, &t.kernel_tx, &t.ring_rx, &t.ring_tx].into_iter().zip(bytes) {
        word.fetch_add(n, Relaxed);
    }
}

/// Copies all counters of `from` to `to`.
pub fn carry_over(from: &Page, to: &Page) {
    let totals = words(&from.totals).into_iter().zip(words(&to.totals));
    for (from, to) in totals.chain(from.reasons.iter().zip(&to.reasons)) {
        to.store(from.load(Relaxed), Relaxed);
    }
}

fn words(t: &Totals) -> [&AtomicU64; 7] {
    [&t.seen, &t.upgraded, &t.returned, &t.ring_rx, &t.ring_tx, &t.kernel_rx, &t.kernel_tx]
}
