//! A lock that may be in memory shared by forked processes, and that survives the death of its owner.
//!
//! The word holds the owner's thread number, so that a waiter can find out whether the owner still lives. Without contention:
//! one compare-and-swap to lock, one swap to unlock.
//!
//! A thread number means the same only in one PID namespace. So all processes that share a lock must be in the same one: preload
//! gives a child in another namespace none of the shared memory (`pid_namespace.rs`, `fork.rs`).

use crate::{arch, call, process};
use core::sync::atomic::{AtomicU32, Ordering};

/// 0: free; otherwise the owner's thread number, with [`WAITERS`] if a thread sleeps.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Lock(AtomicU32);

/// How the lock was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The lock was free, and the data that it protects is consistent.
    Clean,
    /// The owner had died; the data may be inconsistent.
    FromTheDead,
    /// This thread holds the lock already: it runs a signal handler that interrupted the holder. The lock was *not* taken.
    Reentered,
}

/// Failed attempts to take a lock.
#[derive(Debug, Default)]
pub struct Tries {
    spins: u32,
    /// The lock's owner, if found dead.
    dead: Option<u32>,
}

impl Tries {
    /// A thread that has slept cannot know whether others still sleep, so it keeps the mark.
    fn mark(&self) -> u32 {
        if self.spins >= SPINS { WAITERS } else { 0 }
    }
}

const WAITERS: u32 = 1 << 31;
const SPINS: u32 = 200;
/// How long to sleep before checking whether the owner lives.
const CHECK_OWNER_NS: i64 = 10_000_000;

impl Lock {
    /// A free lock.
    pub const fn new() -> Lock {
        Lock(AtomicU32::new(0))
    }

    /// Takes the lock for the thread `me`.
    pub fn lock(&self, me: u32) -> Taken {
        let mut tries = Tries::default();
        loop {
            if let Some(taken) = self.attempt(me, &tries) {
                return taken;
            }
            self.pause(&mut tries);
        }
    }

    /// Takes the lock for the thread `me` if it is free.
    #[inline]
    pub fn try_lock(&self, me: u32) -> bool {
        // SYNC lock
        self.0.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes the lock if possible now. Otherwise the caller must call [`Lock::pause`], and try again.
    pub fn attempt(&self, me: u32, tries: &Tries) -> Option<Taken> {
        // SYNC lock
        match self.0.compare_exchange(0, me | tries.mark(), Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Some(Taken::Clean),
            Err(word) if word & !WAITERS == me => Some(Taken::Reentered),
            Err(_) => {
                let dead = tries.dead?;
                let stolen = me | WAITERS;
                let taken = self.0.compare_exchange(dead | WAITERS, stolen, Ordering::Acquire, Ordering::Relaxed);
                taken.is_ok().then_some(Taken::FromTheDead)
            }
        }
    }

    /// After a failed attempt: spins for a while, then sleeps, and checks whether the owner is dead.
    #[cold]
    pub fn pause(&self, tries: &mut Tries) {
        let word = self.0.load(Ordering::Relaxed);
        tries.dead = None;
        if word == 0 {
        } else if tries.spins < SPINS {
            tries.spins += 1;
            arch::pause();
        } else if self.sleep(word) && !process::exists(word & !WAITERS) {
            tries.dead = Some(word & !WAITERS);
        }
    }

    /// Sleeps until the word changes. True: it did not change for a while.
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

    /// Releases the lock, and wakes a thread that sleeps on it.
    #[inline]
    pub fn unlock(&self) {
        // SYNC lock
        if self.0.swap(0, Ordering::Release) & WAITERS != 0 {
            // SAFETY: waking takes no memory but the word.
            let _ = unsafe { call(libc::SYS_futex, [self.0.as_ptr() as usize, libc::FUTEX_WAKE as usize, 1, 0, 0, 0]) };
        }
    }

    /// Whether a thread holds it.
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
