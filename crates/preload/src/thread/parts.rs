//! What parts of the library keep of each thread, all in one place: the C shim holds the room for it. The parts themselves say
//! what it means. Everything is zero when a thread begins, and atomic, because the thread's signal handlers see it too.

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

#[repr(C, align(8))]
pub struct Parts {
    pub sections: Sections,
    pub faults: Faults,
    pub debts: Debts,
    pub handled: Handled,
    pub rests: Rests,
}

/// Critical sections (`critical`).
#[repr(C)]
pub struct Sections {
    /// How deep the thread is in them; 0: in none.
    pub depth: AtomicU32,
    /// Where its stack ended when the outermost began.
    pub stack: AtomicUsize,
    /// Signals to be let through at the end of the outermost; bit n - 1 is signal n.
    pub deferred: AtomicU64,
}

/// Whether the signals of faults reach the thread (`faults`).
#[repr(C)]
pub struct Faults {
    pub state: AtomicU32,
    /// Where signals go that come during a copy. Null: no copy lets any through just now.
    pub kept: AtomicPtr<c_void>,
}

/// Debts that are recorded at once: more than a call and a handler that interrupts it have.
pub const MOST_DEBTS: usize = 9;

/// What the thread has taken for the time of a call (`debts`).
#[repr(C)]
pub struct Debts {
    pub count: AtomicUsize,
    pub entries: [Debt; MOST_DEBTS],
}

#[repr(C)]
pub struct Debt {
    /// How to give it back.
    pub kind: AtomicPtr<c_void>,
    pub value: AtomicU64,
    /// Where the stack ended when it was taken.
    pub stack: AtomicUsize,
}

/// Handlers of the program that the thread has run, but for those of faults (`handlers`).
#[repr(C)]
pub struct Handled {
    pub all: AtomicU32,
    /// Those that do not ask for a restart of what they interrupt (SA_RESTART).
    pub breaking: AtomicU32,
}

/// How the thread spends its time (`rest`).
#[repr(C)]
pub struct Rests {
    /// When its last sleep ended, in ticks.
    pub woke: AtomicU64,
    pub known: AtomicU64,
}
