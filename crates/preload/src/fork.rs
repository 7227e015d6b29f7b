//! fork(): the child holds every connection too, but the membership, the doorbells and the counters are the
//! parent's. A connection that the child touches goes back to the kernel for both.

use crate::{arena, errno, fdtable, member, place, report, settings, thread, wait};
use core::sync::atomic::{AtomicU32, Ordering::*};
use fdtable::Kind;

/// Grows in each child: what was made before is inherited.
static GENERATION: AtomicU32 = AtomicU32::new(0);

pub fn generation() -> u32 {
    GENERATION.load(Relaxed)
}

/// Before the fork: enters the child as a holder of everything we hold.
pub fn prepare() {
    if !settings::active() {
        return;
    }
    errno::keep(|| {
        let place = arena::reserve_for_child();
        if let Some(p) = place {
            for_each_conn(|c| {
                c.holders.fetch_or(1 << p, AcqRel);
            });
        }
        thread::set_reserved(place);
    });
}

fn for_each_conn(mut each: impl FnMut(&'static arena::Conn)) {
    fdtable::for_each(|_, kind| {
        if let Kind::Conn(index) = kind {
            each(arena::conn(index));
        }
    });
}

/// In the parent, if there is no child after all.
pub fn failed() {
    if !settings::active() {
        return;
    }
    errno::keep(|| arena::cancel_child(thread::take_reserved()));
}

pub fn in_child() {
    if !settings::active() {
        return;
    }
    errno::keep(|| {
        thread::forget();
        GENERATION.fetch_add(1, Relaxed);
        arena::become_child(thread::take_reserved());
        fdtable::for_each(|_, kind| {
            if let Kind::Conn(index) = kind {
                arena::local(index).waiters.store(0, Relaxed); // threads that do not exist here
            }
        });
        report::forget();
        wait::sets::unlock_all();
        member::forget();
        place::forget();
    });
}

unsafe extern "C" {
    fn __register_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
        library: *mut core::ffi::c_void,
    ) -> i32;
}

/// Has libc call us around every fork that it knows of.
pub fn register() {
    extern "C" fn before() {
        prepare();
    }
    extern "C" fn child() {
        in_child();
    }
    // SAFETY: three functions that live as long as the library, which is never unloaded (-z nodelete).
    unsafe { __register_atfork(Some(before), None, Some(child), core::ptr::null_mut()) };
}

/// Before vfork(): until the child has gone, this thread runs on memory that is not its own to change.
pub extern "C" fn vfork_begins() {
    thread::set_vfork(true);
}

/// In the parent, when the child has gone. `result`: of the system call. Returns what vfork() returns.
pub extern "C" fn vfork_ends(result: isize) -> isize {
    thread::set_vfork(false);
    if result < 0 {
        errno::set(-result as i32);
        return -1;
    }
    result
}
