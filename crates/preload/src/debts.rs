//! Resources that a thread holds for the duration of a call. If a signal handler jumps out of the call (siglongjmp), the
//! thread's next call gives them back ([`settle`]).
//!
//! The stack tells an abandoned call from one that a handler has only interrupted ([`thread::is_over`]). A new call much
//! deeper in the stack than the abandoned one counts as a call from a handler. Then the next call that is less deep gives the
//! resources back.

use crate::thread::{self, Debts, MOST_DEBTS};
use crate::{errno, fdtable};
use core::ffi::c_void;
use core::sync::atomic::Ordering::*;
use sidestep_sys::arch::stack_pointer;
use sidestep_sys::signal;

/// A kind of resource, as the function that gives one back. Its arguments are the debt's value and number.
pub struct Kind(pub fn(u32, u32));

/// A resource that is held.
#[derive(Clone, Copy)]
pub struct Debt {
    kind: &'static Kind,
    value: u32,
    number: u32,
}

impl Debt {
    pub const fn new(kind: &'static Kind, value: u32) -> Debt {
        Debt { kind, value, number: 0 }
    }

    pub const fn numbered(kind: &'static Kind, value: u32, number: u32) -> Debt {
        Debt { kind, value, number }
    }

    /// A descriptor of the library's own, made for the call.
    pub const fn descriptor(fd: i32) -> Debt {
        static DESCRIPTOR: Kind = Kind(|fd, _| fdtable::drop_own(fd as i32));
        Debt::new(&DESCRIPTOR, fd as u32)
    }

    fn word(self) -> u64 {
        u64::from(self.value) << 32 | u64::from(self.number)
    }
}

/// The calling thread holds the resource for the duration of its current call.
#[inline]
pub fn owe(debt: Debt) {
    owe_from(debt, stack_pointer());
}

/// As [`owe`], for a function that returns before the call ends. `stack`: the address of a value that lives until the call
/// ends. A debt beyond [`MOST_DEBTS`] is not recorded.
pub fn owe_from(debt: Debt, stack: usize) {
    let debts = &thread::parts().debts;
    let count = debts.count.load(Relaxed);
    if let Some(entry) = debts.entries.get(count) {
        entry.kind.store(core::ptr::from_ref(debt.kind).cast::<c_void>().cast_mut(), Relaxed);
        entry.value.store(debt.word(), Relaxed);
        entry.stack.store(stack, Relaxed);
        debts.count.store(count + 1, Release); // last, so that a handler sees a complete entry or none
    }
}

/// The thread has given the resource back.
#[inline]
pub fn paid(debt: Debt) {
    let debts = &thread::parts().debts;
    let (count, kind) = (debts.count.load(Relaxed), core::ptr::from_ref(debt.kind).cast::<c_void>());
    let is_it = |e: &thread::Debt| e.value.load(Relaxed) == debt.word() && e.kind.load(Relaxed).cast_const() == kind;
    let Some(at) = debts.entries[..count.min(MOST_DEBTS)].iter().rposition(is_it) else { return };
    for (to, from) in (at..count - 1).zip(at + 1..) {
        let (to, from) = (&debts.entries[to], &debts.entries[from]);
        to.kind.store(from.kind.load(Relaxed), Relaxed);
        to.value.store(from.value.load(Relaxed), Relaxed);
        to.stack.store(from.stack.load(Relaxed), Relaxed);
    }
    debts.count.store(count - 1, Release);
}

/// At the beginning of a call: gives back the resources of calls that were left by a jump.
#[inline]
pub fn settle() {
    let debts = &thread::parts().debts;
    if debts.count.load(Relaxed) != 0 {
        errno::keep(|| give_back_abandoned(debts));
    }
}

/// In a forked child: the resources are the parent's.
pub fn reset_in_child() {
    thread::parts().debts.count.store(0, Relaxed);
}

#[cold]
fn give_back_abandoned(debts: &Debts) {
    let alternate = signal::alternate_stack();
    while let Some(newest) = debts.count.load(Relaxed).checked_sub(1) {
        let Some(entry) = debts.entries.get(newest) else { return };
        if !thread::is_over(entry.stack.load(Relaxed), alternate) {
            return;
        }
        debts.count.store(newest, Release);
        // SAFETY: `owe_from` has stored the address of a static there.
        let kind = unsafe { &*entry.kind.load(Relaxed).cast::<Kind>() };
        let word = entry.value.load(Relaxed);
        (kind.0)((word >> 32) as u32, word as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::hint::black_box;
    use std::vec::Vec;

    std::thread_local! {
        static GIVEN_BACK: RefCell<Vec<(u32, u32)>> = const { RefCell::new(Vec::new()) };
    }

    static THING: Kind = Kind(|value, number| GIVEN_BACK.with_borrow_mut(|all| all.push((value, number))));

    fn given_back() -> Vec<(u32, u32)> {
        GIVEN_BACK.take()
    }

    /// Runs deep enough in the stack to be over when it has returned.
    #[inline(never)]
    fn call(work: impl FnOnce()) {
        let below = black_box([0u8; 4096]);
        work();
        black_box(&below);
    }

    #[test]
    fn what_a_call_has_left_is_given_back_at_the_next_one_newest_first() {
        call(|| {
            owe(Debt::numbered(&THING, 7, 1));
            owe(Debt::new(&THING, 8));
        });
        settle();
        assert_eq!(given_back(), [(8, 0), (7, 1)]);
        settle();
        assert_eq!(given_back(), []);
    }

    #[test]
    fn what_an_interrupted_call_has_is_left_to_it() {
        owe(Debt::new(&THING, 1));
        call(settle); // as from a handler
        assert_eq!(given_back(), []);
        paid(Debt::new(&THING, 1));
        settle();
        assert_eq!(given_back(), []);
    }

    #[test]
    fn what_is_paid_is_that_debt_alone() {
        static OTHER: Kind = Kind(|_, _| {});
        call(|| {
            for value in [1, 2, 3] {
                owe(Debt::new(&THING, value));
            }
            paid(Debt::new(&OTHER, 2));
            paid(Debt::new(&THING, 2));
        });
        settle();
        assert_eq!(given_back(), [(3, 0), (1, 0)]);
    }

    #[test]
    fn more_than_there_is_room_for_is_not_recorded() {
        call(|| (0..20).for_each(|value| owe(Debt::new(&THING, value))));
        settle();
        assert_eq!(given_back().len(), MOST_DEBTS);
    }
}
