//! The handler of the library: handles a signal itself, defers it, or passes it to the program.

use super::{is_fault, view::view};
use crate::thread::{self, Handled};
use crate::{critical, faults};
use core::ffi::c_void;
use core::sync::atomic::Ordering::Relaxed;
use sidestep_sys::arch::{self, Interrupted};
use sidestep_sys::signal::{self, Action};
use sidestep_sys::{handler_body, process};

#[unsafe(naked)]
unsafe extern "C" fn caught(_: i32, _: *mut libc::siginfo_t, _: *mut c_void) {
    handler_body!(decide)
}

pub fn address() -> usize {
    caught as *const () as usize
}

pub fn is_ours(action: &Action) -> bool {
    action.handler == address()
}

impl Handled {
    /// Counts of handlers that the thread has run: all, and those without SA_RESTART.
    #[inline]
    pub fn counts(&self) -> (u32, u32) {
        (self.all.load(Relaxed), self.breaking.load(Relaxed))
    }

    fn count(&self, restarts: bool) {
        self.all.store(self.all.load(Relaxed).wrapping_add(1), Relaxed);
        if !restarts {
            self.breaking.store(self.breaking.load(Relaxed).wrapping_add(1), Relaxed);
        }
    }
}

/// BUS_MCEERR_AO of siginfo.h: some memory is broken, but not by an access of this thread.
const ELSEWHERE: i32 = 5;
/// SI_KERNEL of siginfo.h.
const SI_KERNEL: i32 = 0x80;

/// Returns the program's handler that is to run now; 0: none. Makes no call of libc, and for a fault touches no thread-local
/// storage: a program may have replaced libc's own.
unsafe extern "C" fn decide(number: i32, information: *mut libc::siginfo_t, context: *mut c_void) -> usize {
    // SAFETY: the kernel's own arguments.
    let (mut at, code) = unsafe { (Interrupted::new(context.cast()), (*information).si_code) };
    let raised_here = signal::is_of_the_kernel(code) && process::is_fault(number);
    if raised_here && is_fault(number) && arch::is_in_copy(at.instruction()) {
        at.go_on_at(arch::after_failed_copy());
        return 0;
    }
    // SAFETY: as above.
    if !raised_here && at.is_native() && unsafe { waits(number, information, &mut at) } {
        return 0;
    }
    let blocked = raised_here && is_fault(number) && at.is_native() && faults::is_blocked_by_program(number);
    let (handler, once) = if blocked { (libc::SIG_DFL, false) } else { view(number).claim() };
    if handler > libc::SIG_IGN {
        if !raised_here && at.is_native() {
            thread::parts().handled.count(view(number).restarts());
        }
        if once && !is_fault(number) {
            reset(number);
        }
        return handler;
    }
    if raised_here || handler == libc::SIG_DFL {
        // SAFETY: as above.
        unsafe { take_default_action(number, information, raised_here && comes_again(code, &at)) };
    }
    0
}

/// Whether the signal must wait: until a critical section ends, or because the program blocks it and only the library has
/// unblocked it.
unsafe fn waits(number: i32, information: *mut libc::siginfo_t, at: &mut Interrupted) -> bool {
    // SAFETY: by contract.
    unsafe { thread::parts().faults.keep(number, information, at) || critical::defer(number, information, at) }
}

/// Whether the instruction raises the same signal when it is tried again.
fn comes_again(code: i32, at: &Interrupted) -> bool {
    match code {
        SI_KERNEL => at.faulted_without_address(),
        _ => code != ELSEWHERE,
    }
}

/// SA_RESETHAND: sets the default action for the next signal.
fn reset(number: i32) {
    if let Ok(present) = signal::action(number) {
        let flags = view(number).stored().flags;
        // SAFETY: no handler.
        let _ = unsafe { signal::set_action(number, &Action { handler: libc::SIG_DFL, flags, ..present }) };
    }
}

/// The program has no handler (or ignores a fault, which the kernel does not permit). The process ends as it would without
/// the library: by the same signal at the same instruction.
#[cold]
unsafe fn take_default_action(number: i32, information: *mut libc::siginfo_t, comes_again: bool) {
    if !comes_again && process::pid() == 1 {
        return; // the kernel does not end the init process of a PID namespace by such a signal
    }
    // SAFETY: no handler.
    let _ = unsafe { signal::set_action(number, &Action { handler: libc::SIG_DFL, flags: 0, restorer: 0, mask: 0 }) };
    if !comes_again {
        // SAFETY: by contract. Blocked until the handler has returned.
        let _ = unsafe { signal::send_again(number, information) };
    }
}
