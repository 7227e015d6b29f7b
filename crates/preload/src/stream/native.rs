//! Calls that the kernel serves while a connection is on the kernel: nobody attaches it meanwhile.

use crate::arena;
use crate::debts::{self, Debt, Kind};
use crate::record::Conn;

/// A kernel call on a connection holds its upgrade up: record, and what its gate has given.
static GATE: Kind = Kind(|index, number| arena::conn(index).gate.leave(number));

/// Runs a native call with the gate held, so that nobody attaches meanwhile. None: it is attached already.
#[inline]
pub fn natively<T>(index: u32, c: &Conn, call: impl FnOnce() -> T) -> Option<T> {
    if c.is_attached() {
        return None;
    }
    debts::settle();
    // SYNC gate: we enter, then look at the state; the attacher sets the state, then looks at the gate.
    let number = enter_gate(index, c);
    let result = (!c.is_attached()).then(call);
    leave_gate(index, c, number);
    result
}

/// A kernel call on the connection begins: until [`leave_gate`] nobody attaches it.
#[inline]
pub fn enter_gate(index: u32, c: &Conn) -> u32 {
    let number = c.gate.enter();
    debts::owe(Debt::numbered(&GATE, index, number));
    number
}

#[inline]
pub fn leave_gate(index: u32, c: &Conn, number: u32) {
    debts::paid(Debt::numbered(&GATE, index, number));
    c.gate.leave(number);
}
