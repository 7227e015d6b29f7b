//! rt_sigaction(2) through syscall(): a bad pointer is EFAULT, unlike in sigaction(3).

use super::{FAULTS, OTHERS, change};
use crate::user;
use core::sync::atomic::Ordering::Relaxed;
use sidestep_sys::Result;
use sidestep_sys::signal::Action;

/// rt_sigaction(2) through syscall().
///
/// # Safety
/// None but that of any system call: the pointers may be bad.
pub unsafe fn sigaction(number: i32, new: *const Action, old: *mut Action, size: usize) -> Result<usize> {
    let call = |new: *const Action, old: *mut Action| {
        // SAFETY: by contract.
        let args = [number as usize, new as usize, old as usize, size, 0, 0];
        // SAFETY: as above.
        unsafe { sidestep_sys::call(libc::SYS_rt_sigaction, args) }
    };
    if size != 8 || !FAULTS.load(Relaxed) && !OTHERS.load(Relaxed) {
        return call(new, old);
    }
    let wanted = if new.is_null() { None } else { Some(user::read(new)?) };
    let former = change::change(number, wanted.as_ref(), &|action| {
        let mut former = Action { handler: 0, flags: 0, restorer: 0, mask: 0 };
        call(action.map_or(core::ptr::null(), core::ptr::from_ref), &raw mut former).map(|_| former)
    })?;
    if !old.is_null() {
        // SAFETY: the place that the program has named.
        unsafe { user::write(old, former) }?;
    }
    Ok(0)
}
