//! What each thread has of its own.

mod parts;

pub use parts::{Debt, Debts, Faults, Handled, MOST_DEBTS, Parts, Sections};

use crate::blocked;
use crate::symbol::{StandIn, Symbol};
use core::ffi::c_void;
use sidestep_sys::arch::stack_pointer;
use sidestep_sys::process;
use sidestep_sys::signal::AlternateStack;

/// Mirrors `struct ss_thread` of the C shim.
#[repr(C)]
struct Thread {
    tid: u32,
    in_vfork: u32,
    reserved: u32,
    error: i32,
    parts: Parts,
}

const _: () = assert!(size_of::<Parts>() == 36 * 8, "not as large as the C shim has it");
const _: () = assert!(core::mem::offset_of!(Thread, parts) == 16);

/// This thread's storage, which lives as long as the thread.
#[inline(always)]
fn storage() -> *mut Thread {
    sidestep_sys::thread_storage!("ss_self").cast()
}

/// This thread's number; asked of the kernel once.
#[inline]
pub fn tid() -> u32 {
    // SAFETY: the thread's own storage, touched by no one else.
    let thread = unsafe { &mut *storage() };
    if thread.tid == 0 {
        thread.tid = process::tid();
        blocked::begin(thread.tid);
    }
    thread.tid
}

/// What parts of the library keep of this thread.
#[inline]
pub fn parts() -> &'static Parts {
    // SAFETY: the thread's own storage, which lives as long as the thread; atomics only.
    unsafe { &(*storage()).parts }
}

/// Less than the frame that the kernel makes for any signal handler, in bytes: registers, and the state of SSE.
const SIGNAL_FRAME: usize = 512;

/// Whether a function of this thread that had its stack at `stack`, and has not returned, was left by a jump. Else a signal
/// handler has interrupted it and has called us: then the handler's frame lies between that stack and ours, or the
/// handler has a stack of its own.
pub fn is_over(stack: usize, alternate: AlternateStack) -> bool {
    match (alternate.in_use, alternate.contains(stack)) {
        (true, false) => false,
        (false, true) => true,
        _ => stack_pointer() + SIGNAL_FRAME > stack,
    }
}

/// After fork() the one thread of the child has another number.
pub fn reset_in_child() {
    // SAFETY: as above.
    unsafe { (*storage()).tid = 0 };
}

/// Whether we run in a vfork child: our memory is the parent's and must not be touched.
#[inline]
pub fn in_vfork() -> bool {
    // SAFETY: as above.
    unsafe { (*storage()).in_vfork != 0 }
}

pub fn set_vfork(on: bool) {
    // SAFETY: as above.
    unsafe { (*storage()).in_vfork = u32::from(on) };
}

/// The family place of the child that this thread is forking; taken by whoever asks, parent and child alike.
pub fn claim_reserved() -> Option<u32> {
    // SAFETY: as above.
    core::mem::take(unsafe { &mut (*storage()).reserved }).checked_sub(1)
}

pub fn set_reserved(place: Option<u32>) {
    // SAFETY: as above.
    unsafe { (*storage()).reserved = place.map_or(0, |p| p + 1) };
}

/// Stands in for libc's errno.
#[cold]
pub fn own_errno() -> *mut i32 {
    // SAFETY: as above.
    unsafe { &raw mut (*storage()).error }
}

/// For a libc that does not tell: there may be other threads.
static NOT_KNOWN: u8 = 0;

/// Of glibc since 2.32, in sys/single_threaded.h.
static SINGLE: Symbol =
    Symbol::new(c"__libc_single_threaded", StandIn::Complete((&raw const NOT_KNOWN).cast::<c_void>()));

/// Whether there is certainly no other thread in this process.
#[inline]
pub fn is_alone() -> bool {
    // SAFETY: one byte of libc's data, which it writes only while there is one thread; or our own.
    unsafe { SINGLE.get().cast::<u8>().read_volatile() != 0 }
}
