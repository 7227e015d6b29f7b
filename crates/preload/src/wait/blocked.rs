//! Which threads of this process are blocked in a call on which connection: such a connection outlives its number. A thread
//! that is cancelled in its call (pthread_cancel(3)) cannot say that it is gone, so each one is listed with its number, and
//! whoever closes the connection looks whether they live.

use crate::{arena, life, thread};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use sidestep_sys::{arch, clock, process};

/// Threads that can be listed at once. Further ones are only counted, and taken to be alive.
const MOST: usize = 4096;

/// How often at most all of them are looked at.
const LOOK_US: u64 = 100_000;

/// Thread in the upper half, connection + 1 in the lower; 0: free.
static LIST: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];

fn word(tid: u32, index: u32) -> u64 {
    u64::from(tid) << 32 | u64::from(index + 1)
}

/// All entries, beginning with those where a thread's are most likely found.
fn entries(tid: u32) -> impl Iterator<Item = &'static AtomicU64> {
    (0..MOST).map(move |i| &LIST[(tid as usize).wrapping_add(i) % MOST])
}

fn change(tid: u32, from: u64, to: u64) -> bool {
    entries(tid).any(|e| e.load(Relaxed) == from && e.compare_exchange(from, to, SeqCst, Relaxed).is_ok())
}

/// This thread is about to block on the connection.
pub fn enter(index: u32) {
    let tid = thread::tid();
    arena::local(index).waiters.fetch_add(1, SeqCst);
    change(tid, 0, word(tid, index));
}

/// It goes on.
pub fn leave(index: u32) {
    let tid = thread::tid();
    if arena::local(index).waiters.load(SeqCst) > 0 {
        change(tid, word(tid, index), 0);
        count_down(index);
    }
}

fn count_down(index: u32) {
    // In a forked child nobody is counted, not even the thread that goes on there.
    let _ = arena::local(index).waiters.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1));
}

/// Whether a thread is blocked on the connection. Forgets those that are gone.
pub fn is_any(index: u32) -> bool {
    let waiters = &arena::local(index).waiters;
    if waiters.load(SeqCst) > 0 {
        for entry in &LIST {
            let word = entry.load(Relaxed);
            let gone = word as u32 == index + 1 && !process::goes_on((word >> 32) as u32);
            if gone && entry.compare_exchange(word, 0, SeqCst, Relaxed).is_ok() {
                count_down(index);
            }
        }
    }
    waiters.load(SeqCst) > 0
}

/// Connections that are closed and only kept for threads that are blocked on them.
pub static ORPHANS: AtomicU32 = AtomicU32::new(0);

/// Whoever opens or closes a connection looks whether the threads that orphans are kept for have been cancelled.
#[inline]
pub fn look_after_orphans() {
    if ORPHANS.load(Relaxed) > 0 {
        end_orphans();
    }
}

#[cold]
fn end_orphans() {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let (now, next) = (arch::ticks(), NEXT.load(Relaxed));
    let later = now + clock::ticks_of_us(LOOK_US);
    if now < next || NEXT.compare_exchange(next, later, Relaxed, Relaxed).is_err() {
        return;
    }
    for entry in &LIST {
        let index = (entry.load(Relaxed) as u32).wrapping_sub(1);
        if index != u32::MAX && arena::local(index).orphan.load(SeqCst) != 0 && !is_any(index) {
            life::orphan_done(index);
        }
    }
}

/// A thread begins. What is listed under its number is of another one, which is gone.
#[cold]
pub fn begin(tid: u32) {
    for entry in &LIST {
        let word = entry.load(Relaxed);
        if (word >> 32) as u32 == tid && entry.compare_exchange(word, 0, SeqCst, Relaxed).is_ok() {
            count_down(word as u32 - 1);
        }
    }
}

/// In a forked child: these threads do not exist here.
pub fn forget() {
    LIST.iter().for_each(|entry| entry.store(0, Relaxed));
    ORPHANS.store(0, Relaxed);
}
