//! What modules of the library store for each thread, in one struct: the C shim reserves its room. Those modules describe it.
//! Every field is zero when a thread begins. All fields are atomic, because the thread's signal handlers access them, too.

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
    /// Number of nested sections that the thread is in.
    pub depth: AtomicU32,
    /// Stack pointer when the outermost section began.
    pub stack: AtomicUsize,
    /// Signals to unblock at the end of the outermost section; bit n - 1 is signal n.
    pub deferred: AtomicU64,
}

/// Whether the signals of faults reach the thread (`faults`).
#[repr(C)]
pub struct Faults {
    pub state: AtomicU32,
    /// Where signals are stored that arrive during a copy. Null: no copy with unblocked signals is running.
    pub kept: AtomicPtr<c_void>,
}

/// Most debts at once: enough for a call and a handler that interrupts it.
pub const MOST_DEBTS: usize = 9;

/// Resources that the thread holds for the duration of a call (`debts`).
#[repr(C)]
pub struct Debts {
    pub count: AtomicUsize,
    pub entries: [Debt; MOST_DEBTS],
}

#[repr(C)]
pub struct Debt {
    /// The kind, which gives the resource back.
    pub kind: AtomicPtr<c_void>,
    pub value: AtomicU64,
    /// Stack pointer when the resource was taken.
    pub stack: AtomicUsize,
}

/// Number of the program's handlers that the thread has run, without those of faults (`handlers`).
#[repr(C)]
pub struct Handled {
    pub all: AtomicU32,
    /// Those without SA_RESTART.
    pub breaking: AtomicU32,
}

/// How the thread spends its time (`rest`).
#[repr(C)]
pub struct Rests {
    /// Time (ticks) when its last sleep ended.
    pub woke: AtomicU64,
    pub known: AtomicU64,
    /// Time (ticks) of its last operation on a connection that the kernel carries. 0: none.
    pub last_op: AtomicU64,
}
