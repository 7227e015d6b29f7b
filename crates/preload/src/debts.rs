//! What a thread has taken for the time of a call. A signal handler that jumps out of the call (siglongjmp) leaves it
//! taken: the thread gives it back at its next call ([`settle`]).
//!
//! Such a call is told by the stack from one that a handler has only interrupted ([`thread::is_over`]). A call from much
//! deeper in the stack than the one that was left is taken for a handler's; then the next one from less deep gives back.

use crate::{arena, errno, link, place, thread, wait};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use sidestep_sys::arch::stack_pointer;
use sidestep_sys::signal;

/// Something taken, in the order in which it is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Debt {
    /// A kernel call on a connection holds its upgrade up: record, and what its gate has given.
    Gate(u32, u32),
    /// A blocked call keeps a connection alive: record.
    Connection(u32),
    /// A wait in a set that holds nothing of ours (`Set::natives`): set.
    Native(u32),
    /// A place for a blocked thread.
    Place(u32),
    /// Being asleep at a place.
    Sleep(u32),
    /// A descriptor of the library's own, made for the call.
    Descriptor(u32),
}

/// Debts of a thread: more than a call and a handler that interrupts it have. What does not fit is not recorded.
const MOST: usize = 9;

/// The debts of one thread.
#[repr(C)]
pub struct Debts {
    count: AtomicUsize,
    entries: [Entry; MOST],
}

#[repr(C)]
struct Entry {
    debt: AtomicU64,
    /// Where the stack ended.
    stack: AtomicUsize,
}

impl Debt {
    fn to_word(self) -> u64 {
        let (kind, value, generation) = match self {
            Debt::Gate(index, number) => (1, index, number),
            Debt::Connection(index) => (2, index, 0),
            Debt::Native(set) => (3, set, 0),
            Debt::Place(place) => (4, place, 0),
            Debt::Sleep(place) => (5, place, 0),
            Debt::Descriptor(fd) => (6, fd, 0),
        };
        kind << 56 | u64::from(value & VALUE) << 32 | u64::from(generation)
    }

    fn from_word(word: u64) -> Option<Debt> {
        let (value, generation) = ((word >> 32) as u32 & VALUE, word as u32);
        match word >> 56 {
            1 => Some(Debt::Gate(value, generation)),
            2 => Some(Debt::Connection(value)),
            3 => Some(Debt::Native(value)),
            4 => Some(Debt::Place(value)),
            5 => Some(Debt::Sleep(value)),
            6 => Some(Debt::Descriptor(value)),
            _ => None,
        }
    }

    fn give_back(self) {
        match self {
            Debt::Gate(index, number) => arena::conn(index).gate.leave(number),
            Debt::Connection(index) => wait::block::let_go(index),
            Debt::Native(set) => drop(wait::sets::get(set).natives.fetch_sub(1, SeqCst)),
            Debt::Place(place) => place::leave(place),
            Debt::Sleep(place) => place::rise(place, false),
            Debt::Descriptor(fd) => link::drop_own(fd as i32),
        }
    }
}

/// Records, connections and sets have smaller numbers.
const VALUE: u32 = 0xff_ffff;

/// The calling thread has taken this, for the call that it is in.
#[inline]
pub fn owe(debt: Debt) {
    owe_from(debt, stack_pointer());
}

/// The same from a function that returns before the call is over. `stack`: the address of something that lives until then.
pub fn owe_from(debt: Debt, stack: usize) {
    let debts = &thread::more().debts;
    let count = debts.count.load(Relaxed);
    if let Some(entry) = debts.entries.get(count) {
        entry.debt.store(debt.to_word(), Relaxed);
        entry.stack.store(stack, Relaxed);
        debts.count.store(count + 1, Release); // a handler sees the entry or does not
    }
}

/// It has given this back.
#[inline]
pub fn paid(debt: Debt) {
    let debts = &thread::more().debts;
    let (count, word) = (debts.count.load(Relaxed), debt.to_word());
    let Some(at) = debts.entries[..count.min(MOST)].iter().rposition(|e| e.debt.load(Relaxed) == word) else { return };
    for (to, from) in (at..count - 1).zip(at + 1..) {
        let (to, from) = (&debts.entries[to], &debts.entries[from]);
        to.debt.store(from.debt.load(Relaxed), Relaxed);
        to.stack.store(from.stack.load(Relaxed), Relaxed);
    }
    debts.count.store(count - 1, Release);
}

/// At the beginning of a call: gives back what calls have taken that were left by a jump.
#[inline]
pub fn settle() {
    let debts = &thread::more().debts;
    if debts.count.load(Relaxed) != 0 {
        errno::keep(|| debts.give_back_abandoned());
    }
}

/// In a forked child: what was taken is the parent's.
pub fn forget() {
    thread::more().debts.count.store(0, Relaxed);
}

impl Debts {
    #[cold]
    fn give_back_abandoned(&self) {
        let alternate = signal::alternate_stack();
        while let Some(newest) = self.count.load(Relaxed).checked_sub(1) {
            let Some(entry) = self.entries.get(newest) else { return };
            if !thread::is_over(entry.stack.load(Relaxed), alternate) {
                return;
            }
            self.count.store(newest, Release);
            Debt::from_word(entry.debt.load(Relaxed)).inspect(|debt| debt.give_back());
        }
    }
}
