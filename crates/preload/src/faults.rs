//! Lets SIGSEGV and SIGBUS reach a thread while it copies the program's memory (`user`).
//!
//! Many libraries block all signals in their own threads. A fault in a copy would then end the process. So the first copy of
//! a thread unblocks SIGSEGV and SIGBUS and leaves them unblocked: blocking them again after each copy would cost two system
//! calls a copy. The program still sees them as blocked:
//!
//! - A call that reads or changes the mask, or that starts another program, finds the program's own mask ([`Faults::restore`]).
//! - If such a signal was sent by somebody, it is blocked, sent again and stays pending. From then on the signals are
//!   unblocked for the duration of each copy only ([`STRICT`]).
//! - A fault outside of a copy ends the process, as it does in the kernel when the signal is blocked.

use crate::critical;
use crate::thread::{self, Faults};
use core::sync::atomic::{AtomicU32, Ordering::*, compiler_fence};
use sidestep_sys::arch::{self, Interrupted};
use sidestep_sys::signal;

/// States. UNKNOWN: the mask has not been looked at.
const UNKNOWN: u32 = 0;
/// The signals are unblocked for the duration of each copy only.
const STRICT: u32 = 1;
/// The signals reach the thread. The lower bits are those that the program blocks: bit n is `SIGNALS[n]`.
const REACH: u32 = 4;

const SIGNALS: [i32; 2] = [libc::SIGSEGV, libc::SIGBUS];
/// [`SIGNALS`] as a mask: bit n - 1 is signal n.
pub const FAULTS: u64 = bit(SIGNALS[0]) | bit(SIGNALS[1]);

/// Signals that somebody sent during a copy, kept until they are blocked again; in the order of [`SIGNALS`].
type Kept = [Option<libc::siginfo_t>; 2];

/// Whether any thread has ever unblocked signals that its program blocks.
static LENT: AtomicU32 = AtomicU32::new(0);

const fn bit(number: i32) -> u64 {
    1 << (number - 1)
}

/// The signals of a state that the program blocks, as a mask.
fn blocked_in(state: u32) -> u64 {
    let blocked = |n: usize| if state & REACH != 0 && state & 1 << n != 0 { bit(SIGNALS[n]) } else { 0 };
    blocked(0) | blocked(1)
}

/// The state in which signals reach the thread although the program blocks those of `mask`.
fn reached_despite(mask: u64) -> u32 {
    let bits = (0..SIGNALS.len()).filter(|n| mask & bit(SIGNALS[*n]) != 0);
    bits.fold(REACH, |state, n| state | 1 << n)
}

impl Faults {
    /// Whether the signals are known to reach the thread.
    #[inline]
    pub fn reach(&self) -> bool {
        self.state.load(Relaxed) & REACH != 0
    }

    /// Restores the program's mask, before it is read or changed, or is inherited by another program.
    pub fn restore(&self) {
        let blocked = blocked_in(self.state.load(Relaxed));
        if blocked != 0 {
            signal::block(blocked);
            if !thread::in_vfork() {
                self.invalidate(); // a vfork child shares this storage with its parent, and only the child's mask has changed
            }
        }
    }

    /// The program has changed this thread's mask; arguments as of sigprocmask(2).
    pub fn mask_changed(&self, how: i32, set: u64) {
        if how != libc::SIG_UNBLOCK && set & FAULTS != 0 {
            self.invalidate();
        }
    }

    /// The program's mask of this thread may have changed.
    pub fn invalidate(&self) {
        self.state.store(UNKNOWN, Relaxed);
    }

    /// A fault outside of a copy has raised this signal. True: the program blocks the signal, and only the library unblocked
    /// it.
    pub fn are_blocked(&self, number: i32) -> bool {
        blocked_in(self.state.load(Relaxed)) & bit(number) != 0
    }

    /// Somebody has sent this signal. True: the program blocks it, so it is kept and sent again later.
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
        // The signal is blocked while its handler runs, and stays blocked in the mask that the handler returns to.
        // SAFETY: by contract.
        unsafe { signal::send_again(number, information) }.is_ok()
    }

    /// Copies in a thread that the signals do not reach yet. The handler for them is installed (`handlers`).
    ///
    /// # Safety
    /// As for [`arch::copy`].
    #[cold]
    pub unsafe fn copy(&self, to: *mut u8, from: *const u8, len: usize) -> bool {
        critical::section(|| {
            let strict = self.state.load(Relaxed) == STRICT;
            let mut kept: Kept = [None; 2];
            self.kept.store((&raw mut kept).cast(), Relaxed);
            let blocked = signal::unblock(FAULTS) & FAULTS; // pending ones arrive here and are kept
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

/// Whether the program blocks the signal of a fault that has just been raised in this thread. Touches thread-local storage
/// only if some thread has unblocked such signals.
pub fn is_blocked_by_program(number: i32) -> bool {
    LENT.load(Relaxed) != 0 && thread::parts().faults.are_blocked(number)
}
