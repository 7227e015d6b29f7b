//! Whose state the library's memory holds. A child that was made out of sight, by a system call that the library has not seen, has
//! a copy of its parent's state, and must not act as the parent. Or it runs on the parent's memory, and must not change the state.

use crate::thread;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};
use sidestep_sys::{mem, process};

/// Number of the process to which the state belongs; 0: not known yet.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// A word that is 1, and that the kernel sets to 0 in each forked child. Null: the kernel cannot do that, and process numbers must
/// tell. They do not if parent and child are both process 1, each of its own PID namespace.
static MARK: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());

fn mark() -> Option<&'static AtomicU32> {
    // SAFETY: null, or a mapping that is never unmapped.
    unsafe { MARK.load(Relaxed).as_ref() }
}

/// Before main().
pub fn begin() {
    if let Ok(page) = mem::emptied_by_fork(size_of::<AtomicU32>()) {
        MARK.store(page.cast(), Relaxed);
    }
    renew();
}

/// The state is this process's own from now on.
pub fn renew() {
    OWNER.store(process::pid(), Relaxed);
    if let Some(mark) = mark() {
        mark.store(1, Relaxed);
    }
}

/// Whether this is certainly a forked child that has not noticed that it is one. Costs no system call.
#[inline]
pub fn is_marked_copy() -> bool {
    mark().is_some_and(|mark| mark.load(Relaxed) == 0)
}

/// Whether the state is certainly no copy, or one that is this process's own by now.
pub fn is_marked_own() -> bool {
    mark().is_some_and(|mark| mark.load(Relaxed) != 0)
}

/// Whether this is a forked child that has not noticed that it is one.
pub fn is_copy() -> bool {
    match mark() {
        Some(mark) => mark.load(Relaxed) == 0,
        None => !is_owner(process::pid()),
    }
}

/// Whether the state belongs to the calling process, whose number is `pid`.
pub fn belongs_to(pid: u32) -> bool {
    !is_marked_copy() && is_owner(pid)
}

fn is_owner(pid: u32) -> bool {
    let owner = OWNER.load(Relaxed);
    owner == pid || owner == 0
}

/// Whether the calling thread runs on the memory of another process.
pub fn is_borrowed() -> bool {
    thread::in_vfork() || is_marked_own() && !is_owner(process::pid())
}

/// Whether the calling thread may act on the state: it is neither copied nor borrowed.
pub fn is_own() -> bool {
    !thread::in_vfork() && belongs_to(process::pid())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidestep_sys::call;

    /// Forks out of the library's sight. Returns what `work` in the child has returned.
    fn in_unseen_child(work: impl FnOnce() -> bool) -> bool {
        let mut status = 0i32;
        // SAFETY: as fork(2). The child makes system calls only, and ends.
        let pid = unsafe { call(libc::SYS_clone, [libc::SIGCHLD as usize, 0, 0, 0, 0, 0]) }.expect("clone");
        if pid == 0 {
            let code = usize::from(work());
            // SAFETY: ends the process.
            let _ = unsafe { call(libc::SYS_exit_group, [code, 0, 0, 0, 0, 0]) };
        }
        // SAFETY: the status is a live integer.
        unsafe { call(libc::SYS_wait4, [pid, &raw mut status as usize, 0, 0, 0, 0]) }.expect("wait4");
        assert_eq!(status & 0x7f, 0, "the child was killed");
        status >> 8 == 1
    }

    #[test]
    fn a_child_made_out_of_sight_knows_that_it_is_one() {
        begin();
        assert!(!is_copy() && !is_borrowed() && is_own());
        assert!(in_unseen_child(|| is_marked_copy() && is_copy() && !is_borrowed() && !is_own()));
        let renewed = || {
            renew();
            !is_copy() && is_own()
        };
        assert!(in_unseen_child(renewed));
        // Its number says nothing: process 1 of a new PID namespace may be a child of process 1.
        assert!(in_unseen_child(|| {
            OWNER.store(process::pid(), Relaxed);
            is_copy() && !belongs_to(process::pid())
        }));
    }
}
