//! Whether the signals of faults reach a thread: the copies of `user` need them.
//!
//! Many libraries block all signals in their own threads. A fault in a copy would end such a thread, so its first copy lets
//! SIGSEGV and SIGBUS through, and they stay so: to block them again after each copy costs two system calls a copy. The
//! program sees them blocked all the same:
//!
//! - a call that reads or changes the mask, or that begins another program, finds the program's own ([`Faults::restore`]);
//! - one that somebody sends is sent again and waits, blocked. From then on they are let through for the time of each copy
//!   only ([`STRICT`]);
//! - a fault outside of a copy ends the process, as the kernel would have.

use crate::critical;
use crate::thread::{self, Faults};
use core::sync::atomic::{AtomicU32, Ordering::*, compiler_fence};
use sidestep_sys::arch::{self, Interrupted};
use sidestep_sys::signal;

/// States. Nothing is known.
const UNKNOWN: u32 = 0;
/// They are let through for each copy only.
const STRICT: u32 = 1;
/// They reach the thread. The lower bits say which ones the program blocks: bit n is `SIGNALS[n]`.
const REACH: u32 = 4;

const SIGNALS: [i32; 2] = [libc::SIGSEGV, libc::SIGBUS];
/// The same as a mask: bit n - 1 is signal n.
pub const FAULTS: u64 = bit(SIGNALS[0]) | bit(SIGNALS[1]);

/// Signals that somebody has sent, kept until they are blocked again; in the order of [`SIGNALS`].
type Kept = [Option<libc::siginfo_t>; 2];

/// Whether any thread has ever let through what its program blocks.
static LENT: AtomicU32 = AtomicU32::new(0);

const fn bit(number: i32) -> u64 {
    1 << (number - 1)
}

/// The signals of a state that the program blocks, as a mask.
fn blocked_in(state: u32) -> u64 {
    let blocked = |n: usize| if state & REACH != 0 && state & 1 << n != 0 { bit(SIGNALS[n]) } else { 0 };
    blocked(0) | blocked(1)
}

/// The state in which these reach the thread although the program blocks them.
fn reached_despite(mask: u64) -> u32 {
    let bits = (0..SIGNALS.len()).filter(|n| mask & bit(SIGNALS[*n]) != 0);
    bits.fold(REACH, |state, n| state | 1 << n)
}

impl Faults {
    /// Whether they reach the thread, for all that is known.
    #[inline]
    pub fn reach(&self) -> bool {
        self.state.load(Relaxed) & REACH != 0
    }

    /// Before the program's mask of this thread is read or changed, or is inherited by another program: it is as the program
    /// has made it.
    pub fn restore(&self) {
        let blocked = blocked_in(self.state.load(Relaxed));
        if blocked != 0 {
            signal::block(blocked);
            if !thread::in_vfork() {
                self.invalidate(); // else this is the parent's storage, and only the child's mask has changed
            }
        }
    }

    /// The program has changed this thread's mask, as sigprocmask(2) is told.
    pub fn mask_changed(&self, how: i32, set: u64) {
        if how != libc::SIG_UNBLOCK && set & FAULTS != 0 {
            self.invalidate();
        }
    }

    /// The program's mask of this thread may have changed.
    pub fn invalidate(&self) {
        self.state.store(UNKNOWN, Relaxed);
    }

    /// A fault outside of a copy has come. True: only because we let it through.
    pub fn are_blocked(&self, number: i32) -> bool {
        blocked_in(self.state.load(Relaxed)) & bit(number) != 0
    }

    /// A signal that somebody has sent has come. True: only because we let it through, and it will come again.
    ///
    /// # Safety
    /// The arguments must be those of the signal handler that calls this.
    pub unsafe fn keep(&self, number: i32, information: *const libc::siginfo_t, at: &mut Interrupted) -> bool {
        let Some(which) = SIGNALS.iter().position(|s| *s == number) else { return false };
        // SAFETY: on this thread's stack, below us, in a section that no jump leaves.
        if let Some(kept) = unsafe { self.kept.load(Relaxed).cast::<Kept>().as_mut() } {
            // SAFETY: by contract.
            kept[which] = Some(unsafe { information.read() });
            return true;
        }
        if !self.are_blocked(number) {
            return false;
        }
        let blocked = blocked_in(self.state.load(Relaxed));
        SIGNALS.into_iter().filter(|s| blocked & bit(*s) != 0).for_each(|s| at.block(s));
        self.state.store(STRICT, Relaxed);
        // Blocked while its handler runs, and then by the mask that it returns to.
        // SAFETY: by contract.
        unsafe { signal::send_again(number, information) }.is_ok()
    }

    /// A copy of a thread that they do not reach yet. The handler for them is installed (`handlers`).
    ///
    /// # Safety
    /// As for [`arch::copy`].
    #[cold]
    pub unsafe fn copy(&self, to: *mut u8, from: *const u8, len: usize) -> bool {
        critical::section(|| {
            let strict = self.state.load(Relaxed) == STRICT;
            let mut kept: Kept = [None; 2];
            self.kept.store((&raw mut kept).cast(), Relaxed);
            let blocked = signal::unblock(FAULTS) & FAULTS; // what waits is kept here
            // SAFETY: by contract.
            let copied = unsafe { arch::copy(to, from, len) };
            self.state.store(reached_despite(blocked), Relaxed);
            LENT.fetch_max(u32::from(blocked != 0), Relaxed);
            compiler_fence(SeqCst);
            self.kept.store(core::ptr::null_mut(), Relaxed);
            compiler_fence(SeqCst);
            if blocked != 0 && (strict || kept.iter().any(Option::is_some)) {
                signal::block(blocked);
                self.state.store(STRICT, Relaxed);
            }
            for (number, information) in SIGNALS.into_iter().zip(&kept) {
                if let Some(information) = information {
                    // SAFETY: as it came.
                    let _ = unsafe { signal::send_again(number, information) };
                }
            }
            copied
        })
    }
}

/// Whether the calling thread's program blocks the signal of a fault that has just been raised. Looks into thread-local storage
/// only if there is a reason.
pub fn is_blocked_by_program(number: i32) -> bool {
    LENT.load(Relaxed) != 0 && thread::parts().faults.are_blocked(number)
}
