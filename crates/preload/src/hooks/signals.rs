//! Signal handlers and masks. The program's handlers run behind ours, and the library must know whether every handler has
//! SA_RESTART.

use crate::stand_in::signals::HOLD;
use crate::wait::signals::installed;
use crate::{errno, handlers, host, next, thread};
use core::ffi::{c_int, c_long};
use libc::sigset_t;
use sidestep_sys::signal::Action;

/// Whether calls go to libc unchanged: before our constructor has run, or if the layout of libc's structs is unknown.
#[cold]
fn not_known(signal: c_int) {
    installed(signal, usize::MAX, 0);
}

pub unsafe fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    if !host::is_known() {
        not_known(signal);
        // SAFETY: the program's own call.
        return unsafe { next::sigaction(signal, new, old) };
    }
    // SAFETY: the program's own pointer, or null; libc follows it in the same way.
    if let Some(n) = unsafe { new.as_ref() } {
        installed(signal, n.sa_sigaction, n.sa_flags);
    }
    // SAFETY: the same contract.
    unsafe { handlers::sigaction(signal, new, old) }
}

/// signal(3) of BSD: blocks the signal in its handler, and restarts calls unless siginterrupt(3) was called.
pub unsafe fn signal(signal: c_int, handler: usize) -> usize {
    if !host::is_known() {
        not_known(signal);
        // SAFETY: the program's own call.
        return unsafe { next::signal(signal, handler) };
    }
    let flags = if handlers::restarts(signal) { libc::SA_RESTART } else { 0 };
    installed(signal, handler, flags);
    let mask = if (1..=64).contains(&signal) { 1 << (signal - 1) } else { 0 };
    handlers::simple(signal, handler, flags, mask)
}

pub unsafe fn sysv_signal(signal: c_int, handler: usize) -> usize {
    if !host::is_known() {
        not_known(signal);
        // SAFETY: the program's own call.
        return unsafe { next::__sysv_signal(signal, handler) };
    }
    installed(signal, handler, 0);
    handlers::simple(signal, handler, libc::SA_RESETHAND | libc::SA_NODEFER, 0)
}

pub unsafe fn siginterrupt(signal: c_int, on: c_int) -> c_int {
    if on != 0 {
        installed(signal, usize::MAX, 0);
    }
    // SAFETY: the program's own call.
    let result = unsafe { next::siginterrupt(signal, on) };
    if result == 0 {
        handlers::interrupt(signal, on != 0);
    }
    result
}

/// sigset(3) of System V, which also unblocks or blocks the signal.
pub unsafe fn sigset(signal: c_int, handler: usize) -> usize {
    if !host::is_known() {
        not_known(signal);
        // SAFETY: the program's own call.
        return unsafe { next::sigset(signal, handler) };
    }
    thread::parts().faults.restore();
    if handler == HOLD {
        // SAFETY: the program's own call.
        let former = handlers::shown_handler(signal, unsafe { next::sigset(signal, handler) });
        thread::parts().faults.invalidate();
        return former;
    }
    installed(signal, handler, 0);
    let former = handlers::simple(signal, handler, 0, 0);
    if former == libc::SIG_ERR {
        return former;
    }
    let bit = 1u64 << (signal - 1);
    if sidestep_sys::signal::unblock(bit) & bit != 0 { HOLD } else { former }
}

pub unsafe fn sigignore(signal: c_int) -> c_int {
    if !host::is_known() {
        not_known(signal);
        // SAFETY: the program's own call.
        return unsafe { next::sigignore(signal) };
    }
    if handlers::simple(signal, libc::SIG_IGN, 0, 0) == libc::SIG_ERR { -1 } else { 0 }
}

/// rt_sigaction(2) through syscall().
pub unsafe fn raw(signal: c_int, new: *const Action, old: *mut Action, size: usize) -> c_long {
    // SAFETY: the same contract.
    let result = unsafe { handlers::raw::sigaction(signal, new, old, size) };
    if result.is_ok() && !new.is_null() {
        // SAFETY: the kernel has just read it there.
        let new = unsafe { new.read() };
        installed(signal, new.handler, new.flags as c_int);
    }
    errno::give(result) as c_long
}

pub unsafe fn pthread_sigmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
    thread::parts().faults.restore();
    // SAFETY: the program's own call.
    let result = unsafe { next::pthread_sigmask(how, set, old) };
    mask_changed(result, how, set);
    result
}

pub unsafe fn sigprocmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
    thread::parts().faults.restore();
    // SAFETY: the program's own call.
    let result = unsafe { next::sigprocmask(how, set, old) };
    mask_changed(result, how, set);
    result
}

fn mask_changed(result: c_int, how: c_int, set: *const sigset_t) {
    if result == 0 && !set.is_null() {
        // SAFETY: libc has just read it there; its mask is larger than the kernel's word.
        thread::parts().faults.mask_changed(how, unsafe { set.cast::<u64>().read() });
    }
}
