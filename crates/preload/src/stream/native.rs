//! Calls that the kernel serves while a connection is native. The gate keeps other threads from attaching it meanwhile.

use crate::debts::{self, Debt, Kind};
use crate::record::Conn;
use crate::{arena, generation};

/// The debt of a kernel call: it holds the connection's gate. Value: the record; number: that of `Gate::enter`.
static GATE: Kind = Kind(|index, number| arena::conn(index).gate.leave(number));

/// Runs a native call inside the gate, so that nobody attaches the connection meanwhile. None: it is attached already.
#[inline]
pub fn natively<T>(index: u32, c: &Conn, call: impl FnOnce() -> T) -> Option<T> {
    if c.is_attached() {
        return None;
    }
    debts::settle();
    // SYNC gate: we enter, then look at the phase; the attacher sets the phase, then looks at the gate.
    let (generation, number) = (generation::get(), enter_gate(index, c));
    let result = (!c.is_attached()).then(call);
    leave_gate(index, c, number, generation);
    result
}

/// Begins a kernel call on the connection. Nobody attaches it until [`leave_gate`].
#[inline]
pub fn enter_gate(index: u32, c: &Conn) -> u32 {
    let number = c.gate.enter();
    debts::owe(Debt::numbered(&GATE, index, number));
    number
}

/// `generation`: that of the process that entered. A child that a handler has made comes here, too, and the gate is its parent's.
#[inline]
pub fn leave_gate(index: u32, c: &Conn, number: u32, generation: u32) {
    if generation == generation::get() {
        debts::paid(Debt::numbered(&GATE, index, number));
        c.gate.leave(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_does_not_leave_the_gate_that_its_parent_entered() {
        let index = arena::alloc().expect("a record");
        let c = arena::conn(index);
        c.reset(0, arena::bit());
        let (number, parents) = (enter_gate(index, c), generation::get());
        generation::next();
        leave_gate(index, c, number, parents);
        assert!(!c.gate.is_empty());
        leave_gate(index, c, number, generation::get());
        assert!(c.gate.is_empty());
        arena::let_go(index);
    }
}
