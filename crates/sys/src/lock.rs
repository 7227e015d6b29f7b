//! A lock that may lie in memory shared by forked processes, and survives the death of its owner.
//!
//! The word holds the owner's thread number, so that a waiter can ask whether the owner still lives.
//! Uncontended: one compare-and-swap to lock, one swap to unlock.

use crate::{arch, call, process};
use core::sync::atomic::{AtomicU32, Ordering};

/// 0: free; else the owner's thread number, with [`WAITERS`] if somebody sleeps.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Lock(AtomicU32);

/// How the lock was had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    Clean,
    /// The owner had died; what it protected may be half done.
    FromTheDead,
    /// This very thread holds it: a signal handler has interrupted us. The lock was *not* taken.
    Reentered,
}

const WAITERS: u32 = 1 << 31;
const SPINS: u32 = 200;
/// How long to sleep before asking whether the owner lives.
const CHECK_OWNER_NS: i64 = 10_000_000;

impl Lock {
    pub const fn new() -> Lock {
        Lock(AtomicU32::new(0))
    }

    /// Takes the lock for the thread `me`.
    #[inline]
    pub fn lock(&self, me: u32) -> Taken {
        // SYNC lock
        if self.0.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return Taken::Clean;
        }
        self.lock_slowly(me)
    }

    #[cold]
    fn lock_slowly(&self, me: u32) -> Taken {
        let mut spins = 0;
        loop {
            let word = self.0.load(Ordering::Relaxed);
            if word & !WAITERS == me {
                return Taken::Reentered;
            }
            if word == 0 {
                // Having slept, we cannot know whether others still do: keep the mark.
                let mine = if spins >= SPINS { me | WAITERS } else { me };
                if self.0.compare_exchange(0, mine, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    return Taken::Clean;
                }
            } else if spins < SPINS {
                spins += 1;
                arch::pause();
            } else if self.sleep(word) && !process::exists(word & !WAITERS) {
                let stolen = me | WAITERS;
                if self.0.compare_exchange(word | WAITERS, stolen, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    return Taken::FromTheDead;
                }
            }
        }
    }

    /// Sleeps until the word changes; true: nothing happened for a while.
    fn sleep(&self, word: u32) -> bool {
        let marked = word | WAITERS;
        if word != marked && self.0.compare_exchange(word, marked, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return false;
        }
        let ts = libc::timespec { tv_sec: 0, tv_nsec: CHECK_OWNER_NS };
        let at = self.0.as_ptr() as usize;
        let op = libc::FUTEX_WAIT as usize;
        // SAFETY: the word outlives the call; the timespec is alive.
        let result = unsafe { call(libc::SYS_futex, [at, op, marked as usize, &raw const ts as usize, 0, 0]) };
        result == Err(crate::Errno(libc::ETIMEDOUT))
    }

    #[inline]
    pub fn unlock(&self) {
        // SYNC lock
        if self.0.swap(0, Ordering::Release) & WAITERS != 0 {
            // SAFETY: waking takes no memory but the word.
            let _ = unsafe { call(libc::SYS_futex, [self.0.as_ptr() as usize, libc::FUTEX_WAKE as usize, 1, 0, 0, 0]) };
        }
    }

    /// Whether anybody holds it.
    pub fn is_taken(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn excludes() {
        struct Shared(Lock, core::cell::UnsafeCell<u64>);
        // SAFETY: the cell is only touched under the lock; that is what the test tries.
        unsafe impl Sync for Shared {}
        // SAFETY: as above.
        unsafe impl Send for Shared {}
        let shared = Arc::new(Shared(Lock::new(), core::cell::UnsafeCell::new(0)));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let shared = shared.clone();
                std::thread::spawn(move || {
                    for _ in 0..50_000 {
                        assert_eq!(shared.0.lock(process::tid()), Taken::Clean);
                        // SAFETY: under the lock.
                        unsafe { *shared.1.get() += 1 };
                        shared.0.unlock();
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        // SAFETY: all threads are gone.
        assert_eq!(unsafe { *shared.1.get() }, 200_000);
        assert!(!shared.0.is_taken());
    }

    #[test]
    fn a_dead_owner_is_noticed_and_reentry_too() {
        let lock = Lock::new();
        let dead = std::thread::spawn(process::tid).join().unwrap();
        assert_eq!(lock.lock(dead), Taken::Clean);
        assert_eq!(lock.lock(process::tid()), Taken::FromTheDead);
        assert_eq!(lock.lock(process::tid()), Taken::Reentered);
        lock.unlock();
        assert_eq!(lock.lock(process::tid()), Taken::Clean);
    }
}
