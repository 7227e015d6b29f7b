//! The program's signal handlers, and the library's handler in front of them.
//!
//! A fault in a copy (`user`) must become EFAULT, and a handler must not run while its thread holds a lock of the library
//! (`critical`). So the kernel calls our handler first ([`caught`]). Unless the signal is for the library, our handler jumps to
//! the program's handler, with stack and arguments as the kernel prepared them, and with the program's own flags and mask.
//! The program sets and sees its own actions only ([`change`]).
//!
//! Our handler is installed for SIGSEGV and SIGBUS from the first copy on; for other signals that the program handles, from
//! the first upgrade on. A program that installs a handler past libc replaces ours, and gets faults in copies itself.

mod caught;
mod change;
pub mod raw;
mod view;

pub use change::{as_ignored, interrupt, restarts, shown_handler, sigaction, simple};

use crate::{critical::Lock, thread};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use sidestep_sys::arch;
use sidestep_sys::lock::Taken;
use sidestep_sys::signal::{self, Action, SA_RESTORER};
use view::view;

/// Held for every change of actions.
static LOCK: Lock = Lock::new();

/// In a forked child: releases the lock.
pub fn unlock() {
    LOCK.reset_in_child();
}
/// Whether our handler is installed for faults.
static FAULTS: AtomicBool = AtomicBool::new(false);
/// Whether our handler is installed for other signals that the program handles.
static OTHERS: AtomicBool = AtomicBool::new(false);
/// Restorer of libc (the code that a handler returns to), known once a handler has been installed.
static RESTORER: AtomicUsize = AtomicUsize::new(0);

const SIGNALS: core::ops::RangeInclusive<i32> = 1..=64;

fn is_fault(number: i32) -> bool {
    matches!(number, libc::SIGSEGV | libc::SIGBUS)
}

/// SIGKILL and SIGSTOP, which have no handlers, and the two signals that libc keeps for itself.
fn is_reserved(number: i32) -> bool {
    matches!(number, libc::SIGKILL | libc::SIGSTOP | 32 | 33)
}

/// Catches faults in copies from now on.
#[cold]
pub fn install() {
    arch::prepare_copy();
    if !FAULTS.load(Relaxed) && wrap_all(&mut [libc::SIGSEGV, libc::SIGBUS].into_iter()) && !thread::in_vfork() {
        FAULTS.store(true, Release);
    }
}

/// Defers the program's handlers during critical sections from now on.
#[cold]
pub fn install_all() {
    install();
    if !OTHERS.load(Relaxed) {
        OTHERS.store(wrap_all(&mut SIGNALS.filter(|n| !is_fault(*n) && !is_reserved(*n))), Release);
    }
}

/// Whether our handler comes before all handlers of the program that were installed through libc.
#[inline]
pub fn are_ours() -> bool {
    OTHERS.load(Relaxed)
}

fn wrap_all(numbers: &mut dyn Iterator<Item = i32>) -> bool {
    if LOCK.lock(thread::tid()) == Taken::Reentered {
        return false;
    }
    numbers.for_each(wrap);
    LOCK.unlock();
    true
}

/// Installs our handler in front of the program's present one for this signal.
fn wrap(number: i32) {
    let Ok(present) = signal::action(number) else { return };
    let handled = present.handler > libc::SIG_IGN && present.flags & SA_RESTORER != 0;
    if caught::is_ours(&present) || !(handled || is_fault(number)) {
        return;
    }
    view(number).set(&present);
    let ours = in_front_of(&present);
    let _ = if handled {
        // SAFETY: our handler, with the restorer of the program's.
        unsafe { signal::set_action(number, &ours) }
    } else {
        change::set_by_libc(number, Some(&ours)).map(drop)
    };
    RESTORER.store(signal::action(number).map_or(0, |a| a.restorer), Relaxed);
}

/// Our action, with the flags that the program's handler needs.
fn in_front_of(program: &Action) -> Action {
    const OURS: u64 = (libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART) as u64 | SA_RESTORER;
    let flags = if program.handler > libc::SIG_IGN {
        program.flags & !(libc::SA_RESETHAND as u32 as u64) | libc::SA_SIGINFO as u64 // our handler does the reset
    } else {
        OURS
    };
    let own = program.flags & SA_RESTORER != 0;
    let restorer = if own { program.restorer } else { RESTORER.load(Relaxed) };
    Action { handler: caught::address(), flags, restorer, mask: program.mask }
}

/// Before the program confines itself: gives its handlers back to the kernel, and installs nothing any more.
pub fn retire() {
    if LOCK.lock(thread::tid()) == Taken::Reentered {
        return;
    }
    FAULTS.store(false, Relaxed);
    OTHERS.store(false, Relaxed);
    for number in SIGNALS.filter(|n| !is_reserved(*n)) {
        if let Ok(present) = signal::action(number)
            && caught::is_ours(&present)
        {
            // SAFETY: the action that the program has asked for.
            let _ = unsafe { signal::set_action(number, &view(number).shown(&present)) };
        }
    }
    LOCK.unlock();
}
