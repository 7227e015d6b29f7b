//! Locks of the library, and signal handlers of the program that arrive while this thread holds one.
//!
//! A handler may jump out (siglongjmp), so that nobody would release the lock. A handler may also use the very connection that
//! the thread was working on. So [`defer`] sends the signal again and blocks it. The handler runs a few microseconds later,
//! when the thread has released its last lock.

use crate::thread::{self, Sections};
use core::sync::atomic::{Ordering::Relaxed, compiler_fence};
use sidestep_sys::arch::{Interrupted, stack_pointer};
use sidestep_sys::lock::{self, Taken, Tries};
use sidestep_sys::{process, signal};

/// The first signal of which the kernel queues several, in order (signal(7)).
const FIRST_QUEUED: i32 = 32;

impl Sections {
    #[inline]
    fn enter(&self) {
        let depth = self.depth.load(Relaxed);
        if depth == 0 {
            self.stack.store(stack_pointer(), Relaxed);
        }
        self.depth.store(depth + 1, Relaxed);
        // The compiler must not move this store: a handler of this thread must see it before the section's work.
        compiler_fence(core::sync::atomic::Ordering::SeqCst);
    }

    #[inline]
    fn leave(&self) {
        compiler_fence(core::sync::atomic::Ordering::SeqCst);
        let depth = self.depth.load(Relaxed).saturating_sub(1); // 0: `reentered` took this section for abandoned
        self.depth.store(depth, Relaxed);
        if depth == 0 && self.deferred.load(Relaxed) != 0 {
            self.let_through();
        }
    }

    #[cold]
    fn let_through(&self) {
        signal::unblock(self.deferred.swap(0, Relaxed)); // the handlers run here
    }

    /// Whether a jump left the section in which this thread took the lock that it wants again now.
    #[cold]
    fn is_abandoned(&self) -> bool {
        thread::is_over(self.stack.load(Relaxed), signal::alternate_stack())
    }
}

/// Runs `work` without interruption by the program's handlers.
pub fn section<T>(work: impl FnOnce() -> T) -> T {
    let sections = &thread::parts().sections;
    sections.enter();
    let result = work();
    sections.leave();
    result
}

/// The program's handler for this signal is about to run. True: the handler is deferred and the thread goes on.
///
/// # Safety
/// The arguments must be those of the signal handler that calls this.
pub unsafe fn defer(number: i32, information: *const libc::siginfo_t, at: &mut Interrupted) -> bool {
    let sections = &thread::parts().sections;
    // If a jump left the section, its stack lies below that of the code that was interrupted now.
    if sections.depth.load(Relaxed) == 0 || at.stack() > sections.stack.load(Relaxed) {
        return false;
    }
    let bit = 1 << (number - 1);
    if number >= FIRST_QUEUED && process::pending_signals() & bit != 0 {
        return false; // sent again, this instance would come after later ones in the kernel's queue
    }
    signal::block(bit); // a handler with SA_NODEFER runs with its signal unblocked
    // SAFETY: by contract.
    if unsafe { signal::send_again(number, information) }.is_err() {
        return false;
    }
    at.block(number);
    sections.deferred.fetch_or(bit, Relaxed);
    true
}

/// A lock of the library. Handlers of the program are deferred while the thread holds one.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Lock(lock::Lock);

impl Lock {
    pub const fn new() -> Lock {
        Lock(lock::Lock::new())
    }

    /// Takes the lock for the calling thread, whose number is `me`.
    #[inline]
    pub fn lock(&self, me: u32) -> Taken {
        let sections = &thread::parts().sections;
        sections.enter();
        if self.0.try_lock(me) { Taken::Clean } else { self.lock_slowly(sections, me) }
    }

    /// While the thread waits for the lock it is in no section, so handlers can run.
    #[cold]
    #[inline(never)]
    fn lock_slowly(&self, sections: &Sections, me: u32) -> Taken {
        let mut tries = Tries::default();
        loop {
            match self.0.attempt(me, &tries) {
                Some(Taken::Reentered) => return self.reentered(sections),
                Some(taken) => return taken,
                None => {
                    sections.leave();
                    self.0.pause(&mut tries);
                    sections.enter();
                }
            }
        }
    }

    #[cold]
    fn reentered(&self, sections: &Sections) -> Taken {
        if sections.is_abandoned() {
            sections.depth.store(1, Relaxed);
            return Taken::FromTheDead;
        }
        sections.leave();
        Taken::Reentered
    }

    #[inline]
    pub fn unlock(&self) {
        self.0.unlock();
        thread::parts().sections.leave();
    }

    /// In a forked child, or where nobody can hold the lock: the thread that held it does not exist.
    pub fn reset_in_child(&self) {
        if self.0.is_taken() {
            self.0.unlock();
        }
    }
}
