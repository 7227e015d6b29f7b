//! The program's own action for each signal for which our handler is installed.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use sidestep_sys::signal::{Action, SA_RESTORER};

/// The part of the program's action that the kernel does not hold while our handler is installed. The kernel holds the
/// program's mask and, if the program has one, its restorer.
pub struct View {
    handler: AtomicUsize,
    flags: AtomicU64,
    restorer: AtomicUsize,
}

static VIEWS: [View; 65] = [const { View::new() }; 65];

const RESTART: u64 = libc::SA_RESTART as u64;
const RESETHAND: u64 = libc::SA_RESETHAND as u32 as u64;

/// `number`: of a signal.
#[inline]
pub fn view(number: i32) -> &'static View {
    &VIEWS[number as usize % VIEWS.len()]
}

impl View {
    const fn new() -> View {
        View { handler: AtomicUsize::new(0), flags: AtomicU64::new(0), restorer: AtomicUsize::new(0) }
    }

    pub fn copy_of(other: &View) -> View {
        let view = View::new();
        view.set(&other.stored());
        view
    }

    pub fn set(&self, action: &Action) {
        self.flags.store(action.flags, Relaxed);
        self.restorer.store(action.restorer, Relaxed);
        self.handler.store(action.handler, Release);
    }

    /// The stored action; its mask is 0.
    pub fn stored(&self) -> Action {
        let handler = self.handler.load(Acquire);
        Action { handler, flags: self.flags.load(Relaxed), restorer: self.restorer.load(Relaxed), mask: 0 }
    }

    /// The program's whole action. `present`: the action that the kernel has.
    pub fn shown(&self, present: &Action) -> Action {
        let stored = self.stored();
        let restorer = if stored.flags & SA_RESTORER != 0 { present.restorer } else { stored.restorer };
        Action { restorer, mask: present.mask, ..stored }
    }

    pub fn ignores(&self) -> bool {
        self.handler.load(Acquire) == libc::SIG_IGN
    }

    pub fn restarts(&self) -> bool {
        self.flags.load(Relaxed) & RESTART != 0
    }

    pub fn set_restart(&self, on: bool) {
        if on {
            self.flags.fetch_or(RESTART, Relaxed)
        } else {
            self.flags.fetch_and(!RESTART, Relaxed)
        };
    }

    /// The program's handler for a signal that has just come, and whether it was set for this one signal only (SA_RESETHAND).
    pub fn claim(&self) -> (usize, bool) {
        let handler = self.handler.load(Acquire);
        if handler <= libc::SIG_IGN || self.flags.load(Relaxed) & RESETHAND == 0 {
            return (handler, false);
        }
        match self.handler.compare_exchange(handler, libc::SIG_DFL, AcqRel, Acquire) {
            Ok(_) => (handler, true),
            Err(now) => (now, false), // another thread was first
        }
    }
}
