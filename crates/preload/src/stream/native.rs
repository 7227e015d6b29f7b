//! Calls that the kernel serves while a connection is native. The gate keeps other threads from attaching it meanwhile.

use crate::arena;
use crate::debts::{self, Debt, Kind};
use crate::record::Conn;

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
    let number = enter_gate(index, c);
    let result = (!c.is_attached()).then(call);
    leave_gate(index, c, number);
    result
}

/// Begins a kernel call on the connection. Nobody attaches it until [`leave_gate`].
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
