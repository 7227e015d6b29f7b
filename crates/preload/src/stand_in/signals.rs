//! sigaction(3) and its kin by system calls.

use super::{SIGSET, words};
use crate::errno;
use core::ffi::c_int;
use libc::{SIG_ERR, sigset_t};
use sidestep_sys::signal::{self, Action, SA_RESTORER};
use sidestep_sys::{Errno, Result, arch, call};

/// An action with a restorer of our own, in place of libc's.
fn action(handler: usize, flags: c_int, mask: u64) -> Action {
    let restorer = arch::restore as *const () as usize;
    Action { handler, flags: u64::from(flags as u32) | SA_RESTORER, restorer, mask }
}

/// Sets the action, if there is a new one. Returns the old one.
fn act(number: c_int, new: Option<&Action>) -> Result<Action> {
    let before = signal::action(number)?;
    if let Some(new) = new {
        // SAFETY: the program's handler, with a restorer.
        unsafe { signal::set_action(number, new) }?;
    }
    Ok(before)
}

pub unsafe extern "C" fn sigaction(number: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    // SAFETY: the caller's action, or null. The kernel's signals are the first word of a set.
    let new =
        unsafe { new.as_ref() }.map(|n| action(n.sa_sigaction, n.sa_flags, unsafe { *(&raw const n.sa_mask).cast() }));
    let before = act(number, new.as_ref());
    // SAFETY: the caller's action, or null.
    if let (Ok(before), Some(old)) = (&before, unsafe { old.as_mut() }) {
        // SAFETY: integers and pointers: all zero is a value.
        *old = unsafe { core::mem::zeroed() };
        old.sa_sigaction = before.handler;
        old.sa_flags = (before.flags & !SA_RESTORER) as c_int;
        // SAFETY: as above.
        unsafe { *(&raw mut old.sa_mask).cast::<u64>() = before.mask };
    }
    errno::give(before.map(|_| 0)) as c_int
}

pub unsafe extern "C" fn signal(number: c_int, handler: usize) -> usize {
    handle(number, action(handler, libc::SA_RESTART, 0))
}

pub unsafe extern "C" fn sysv_signal(number: c_int, handler: usize) -> usize {
    handle(number, action(handler, libc::SA_RESETHAND | libc::SA_NODEFER, 0))
}

fn handle(number: c_int, action: Action) -> usize {
    match act(number, Some(&action)) {
        Ok(before) => before.handler,
        Err(e) => {
            errno::set(e.0);
            SIG_ERR
        }
    }
}

/// SIG_HOLD of signal.h.
pub const HOLD: usize = 2;

pub unsafe extern "C" fn sigset(number: c_int, handler: usize) -> usize {
    let before = match act(number, None) {
        Ok(before) => before.handler,
        Err(e) => return errno::give(Err(e)) as usize,
    };
    let bit = 1 << (number - 1);
    let mask = if handler == HOLD {
        signal::block(bit)
    } else {
        if handle(number, action(handler, 0, 0)) == SIG_ERR {
            return SIG_ERR;
        }
        signal::unblock(bit)
    };
    if mask & bit != 0 { HOLD } else { before }
}

pub unsafe extern "C" fn sigignore(number: c_int) -> c_int {
    if handle(number, action(libc::SIG_IGN, 0, 0)) == SIG_ERR { -1 } else { 0 }
}

pub unsafe extern "C" fn siginterrupt(number: c_int, on: c_int) -> c_int {
    let restart = libc::SA_RESTART as u64;
    let changed = act(number, None).and_then(|mut action| {
        action.flags = if on != 0 { action.flags & !restart } else { action.flags | restart };
        act(number, Some(&action))
    });
    errno::give(changed.map(|_| 0)) as c_int
}

/// Returns the error number.
pub unsafe extern "C" fn pthread_sigmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
    // SAFETY: the program's own sets.
    match unsafe { mask(how, set, old) } {
        Ok(_) => 0,
        Err(Errno(e)) => e,
    }
}

pub unsafe extern "C" fn sigprocmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
    // SAFETY: the program's own sets.
    errno::give(unsafe { mask(how, set, old) }) as c_int
}

/// # Safety
/// The program must have named `old` as the place for its mask, if it is not null.
unsafe fn mask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> Result<usize> {
    // SAFETY: by contract; the kernel looks at the first words of both.
    unsafe { call(libc::SYS_rt_sigprocmask, words([how as usize, set as usize, old as usize, SIGSET])) }
}
