//! Storage of each thread.

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
    prepared: u32,
    error: i32,
    parts: Parts,
}

const _: () = assert!(size_of::<Parts>() == 37 * 8, "not as large as the C shim has it");
const _: () = assert!(core::mem::offset_of!(Thread, parts) == 16);

/// The calling thread's storage. It lives as long as the thread.
#[inline(always)]
fn storage() -> *mut Thread {
    sidestep_sys::thread_storage!("ss_self").cast()
}

/// The calling thread's number; the kernel is asked once.
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

/// The parts of the calling thread's storage that modules of the library use.
#[inline]
pub fn parts() -> &'static Parts {
    // SAFETY: the thread's own storage, which lives as long as the thread; atomics only.
    unsafe { &(*storage()).parts }
}

/// In bytes, less than any signal frame of the kernel: it has the registers and the state of SSE.
const SIGNAL_FRAME: usize = 512;

/// Whether a jump has left a function of this thread that had its stack at `stack` and has not returned. Otherwise a signal
/// handler has interrupted the function and has called us. Then the handler's frame lies between `stack` and our stack, or the
/// handler has an alternate stack.
pub fn is_over(stack: usize, alternate: AlternateStack) -> bool {
    match (alternate.in_use, alternate.contains(stack)) {
        (true, false) => false,
        (false, true) => true,
        _ => stack_pointer() + SIGNAL_FRAME > stack,
    }
}

/// In a forked child: the one thread there has another number.
pub fn reset_in_child() {
    // SAFETY: as above.
    unsafe { (*storage()).tid = 0 };
}

/// Whether this is a vfork child: its memory is the parent's, and must not be changed.
#[inline]
pub fn in_vfork() -> bool {
    // SAFETY: as above.
    unsafe { (*storage()).in_vfork != 0 }
}

pub fn set_vfork(on: bool) {
    // SAFETY: as above.
    unsafe { (*storage()).in_vfork = u32::from(on) };
}

/// What the parent has prepared for the child of a fork().
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Prepared {
    /// The library has not seen the fork.
    Nothing,
    /// The parent holds nothing, so there is no place in a family.
    Alone,
    /// The child is in another PID namespace, and can belong to no family of its parent's.
    Apart,
    /// The family has no place for the child, which can share nothing.
    Crowded,
    /// The number of this birth (`arena`) in the family. The child holds what the parent holds.
    Birth(u32),
}

/// Takes what is prepared for the child of a fork() of this thread. Parent and child each take it.
pub fn claim_prepared() -> Prepared {
    // SAFETY: as above.
    let word = core::mem::take(unsafe { &mut (*storage()).prepared });
    match word {
        0 => Prepared::Nothing,
        1 => Prepared::Alone,
        2 => Prepared::Apart,
        3 => Prepared::Crowded,
        _ => Prepared::Birth(word - 4),
    }
}

pub fn set_prepared(what: Prepared) {
    let word = match what {
        Prepared::Nothing => 0,
        Prepared::Alone => 1,
        Prepared::Apart => 2,
        Prepared::Crowded => 3,
        Prepared::Birth(number) => number + 4,
    };
    // SAFETY: as above.
    unsafe { (*storage()).prepared = word };
}

/// The errno of a thread whose libc has none.
#[cold]
pub fn own_errno() -> *mut i32 {
    // SAFETY: as above.
    unsafe { &raw mut (*storage()).error }
}

/// Used if libc has no such variable: there may be other threads.
static NOT_KNOWN: u8 = 0;

/// The variable of sys/single_threaded.h, in glibc since 2.32.
static SINGLE: Symbol =
    Symbol::new(c"__libc_single_threaded", StandIn::Complete((&raw const NOT_KNOWN).cast::<c_void>()));

/// Whether this is the only thread of the process, also after others have ended. Asks the kernel if libc does not know.
pub fn is_last() -> bool {
    is_alone() || process::threads() == Some(1)
}

/// Whether this is certainly the only thread of the process.
#[inline]
pub fn is_alone() -> bool {
    // SAFETY: one byte of libc's data, which it writes only while there is one thread; or our own.
    unsafe { SINGLE.get().cast::<u8>().read_volatile() != 0 }
}
