//! sigaction(2) and its kin, as the program sees them.

use super::view::{View, view};
use super::{FAULTS, LOCK, OTHERS, caught, in_front_of, is_fault, is_reserved};
use crate::{errno, next, settings, thread};
use core::sync::atomic::{AtomicU64, Ordering::*};
use sidestep_sys::lock::Taken;
use sidestep_sys::signal::{self, Action, KNOWN_FLAGS, SA_RESTORER};
use sidestep_sys::{Errno, Result};

/// Makes the call with the given action, and returns the former one.
pub(super) type Call<'a> = &'a dyn Fn(Option<&Action>) -> Result<Action>;

/// Changes or reads the action of a signal.
pub(super) fn change(number: i32, new: Option<&Action>, call: Call) -> Result<Action> {
    let ours = settings::active() && (1..=64).contains(&number) && !is_reserved(number) && !thread::in_vfork();
    // Reentered: a handler that was installed past the library has interrupted a change.
    if !ours || LOCK.lock(thread::tid()) == Taken::Reentered {
        return call(new).map(|present| shown(&present, view(number)));
    }
    let result = change_locked(number, new, call);
    LOCK.unlock();
    result
}

fn change_locked(number: i32, new: Option<&Action>, call: Call) -> Result<Action> {
    let Some(new) = new.filter(|new| is_wrapped(number, new)) else {
        return call(new).map(|present| shown(&present, view(number)));
    };
    let before = View::copy_of(view(number));
    // The program's handler must be stored before our handler is installed for it.
    view(number).set(&Action { flags: new.flags & KNOWN_FLAGS, ..*new });
    match call(Some(&in_front_of(new))) {
        Ok(present) => Ok(shown(&present, &before)),
        Err(e) => {
            view(number).set(&before.stored());
            Err(e)
        }
    }
}

/// Whether our handler is installed in front of what the program wants for this signal.
fn is_wrapped(number: i32, new: &Action) -> bool {
    let handled = new.handler > libc::SIG_IGN;
    if handled && new.flags & SA_RESTORER == 0 {
        return false; // such a handler cannot return, and the kernel ends the process
    }
    if is_fault(number) { FAULTS.load(Relaxed) } else { handled && OTHERS.load(Relaxed) }
}

/// The action that the program sees where the kernel has `present`.
fn shown(present: &Action, view: &View) -> Action {
    if caught::is_ours(present) { view.shown(present) } else { *present }
}

fn to_libc(action: &Action) -> libc::sigaction {
    // SAFETY: integers and a null pointer: all zero is a value.
    let mut new: libc::sigaction = unsafe { core::mem::zeroed() };
    new.sa_sigaction = action.handler;
    new.sa_flags = action.flags as i32;
    // SAFETY: libc's mask is larger than the kernel's word; a restorer is only a pointer here.
    unsafe {
        (&raw mut new.sa_mask).cast::<u64>().write(action.mask);
        (&raw mut new.sa_restorer).cast::<usize>().write(action.restorer);
    }
    new
}

/// libc's struct as libc will pass it to the kernel, without libc's own restorer.
fn from_libc(action: &libc::sigaction) -> Action {
    let flags = u64::from(action.sa_flags as u32) | SA_RESTORER;
    // SAFETY: libc's mask is larger than the kernel's word.
    let mask = unsafe { (&raw const action.sa_mask).cast::<u64>().read() };
    Action { handler: action.sa_sigaction, flags, restorer: 0, mask }
}

/// Calls libc's sigaction(), with all its side effects. Returns the former action.
pub fn set_by_libc(number: i32, new: Option<&Action>) -> Result<Action> {
    let new = new.map(to_libc);
    let mut old = to_libc(&Action { handler: 0, flags: 0, restorer: 0, mask: 0 });
    let pointer = new.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: two structs of libc's, alive; a handler is the program's or ours.
    errno::check(unsafe { next::sigaction(number, pointer, &raw mut old) } as isize)?;
    // SAFETY: as in `to_libc`.
    let restorer = unsafe { (&raw const old.sa_restorer).cast::<usize>().read() };
    Ok(Action { flags: u64::from(old.sa_flags as u32), restorer, ..from_libc(&old) })
}

/// sigaction(3).
///
/// # Safety
/// libc's contract: null, or pointers to its struct.
pub unsafe fn sigaction(number: i32, new: *const libc::sigaction, old: *mut libc::sigaction) -> i32 {
    // SAFETY: by contract; libc follows the pointer in the same way.
    let new = unsafe { new.as_ref() }.map(from_libc);
    let result = change(number, new.as_ref(), &|action| set_by_libc(number, action));
    if let Ok(action) = &result
        && !old.is_null()
    {
        // SAFETY: by contract.
        unsafe { old.write(to_libc(action)) };
    }
    errno::give(result.map(|_| 0)) as i32
}

/// signal(3) and its kin: a handler with these flags and this mask. Returns the former one.
pub fn simple(number: i32, handler: usize, flags: i32, mask: u64) -> usize {
    if handler == libc::SIG_ERR {
        return errno::give(Err(Errno(libc::EINVAL))) as usize;
    }
    let new = from_libc(&to_libc(&Action { handler, flags: u64::from(flags as u32), restorer: 0, mask }));
    match change(number, Some(&new), &|action| set_by_libc(number, action)) {
        Ok(former) => former.handler,
        Err(e) => errno::give(Err(e)) as usize,
    }
}

/// The handler that the program sees where libc has returned `handler`.
pub fn shown_handler(number: i32, handler: usize) -> usize {
    if handler == caught::address() { view(number).stored().handler } else { handler }
}

/// Signals for which siginterrupt(3) was called: signal(3) installs their handlers without SA_RESTART.
static INTERRUPTING: AtomicU64 = AtomicU64::new(0);

/// Whether signal(3) sets SA_RESTART: yes, unless siginterrupt(3) has been called for the signal.
pub fn restarts(number: i32) -> bool {
    !(1..=64).contains(&number) || INTERRUPTING.load(Relaxed) >> (number - 1) & 1 == 0
}

/// siginterrupt(3) has succeeded: libc has changed the flag in the kernel's action, and this changes it in the stored one.
pub fn interrupt(number: i32, on: bool) {
    if (1..=64).contains(&number) {
        let bit = 1 << (number - 1);
        if on {
            INTERRUPTING.fetch_or(bit, Relaxed)
        } else {
            INTERRUPTING.fetch_and(!bit, Relaxed)
        };
        view(number).set_restart(!on);
    }
}

/// Makes `call`, which starts another program. A signal that the program ignores must stay ignored there; with our handler
/// installed, exec() would set the default action. Until `call` returns, a fault in a copy ends the process.
pub fn as_ignored<T>(call: impl FnOnce() -> T) -> T {
    let ignored = |number: &i32| FAULTS.load(Relaxed) && view(*number).ignores();
    let ours = [libc::SIGSEGV, libc::SIGBUS].map(|n| Some(n).filter(ignored).and_then(taken_back));
    let result = call();
    for (number, ours) in ours.into_iter().flatten() {
        // SAFETY: our handler, as it was.
        let _ = unsafe { signal::set_action(number, &ours) };
    }
    result
}

/// Makes the kernel ignore the signal. Returns our action, if it was installed.
fn taken_back(number: i32) -> Option<(i32, Action)> {
    let ours = signal::action(number).ok().filter(caught::is_ours)?;
    // SAFETY: no handler.
    unsafe { signal::set_action(number, &view(number).shown(&ours)) }.ok()?;
    Some((number, ours))
}
