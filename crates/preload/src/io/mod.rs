//! Bytes in and out of a connection, whatever call they came by.

pub mod deputy;
pub mod iov;
mod late;
pub mod past_us;
pub mod recv;
pub mod send;

pub use late::unlock;

use crate::debts::{self, Debt};
use crate::record::{Conn, flag, state};
use crate::{arena, attach, member};
use core::sync::atomic::Ordering::*;

/// What every call on a connection begins with: the broker's news, and the next step of an upgrade.
#[inline]
pub fn arrive(index: u32) -> &'static Conn {
    let c = arena::conn(index);
    member::check();
    if c.state.load(Relaxed) == state::ATTACHING || c.has(flag::NOT_READY) {
        attach::advance(index, c);
    }
    if c.is_attached() && is_inherited(c) {
        disinherit(index, c);
    }
    if c.flags.load(Relaxed) & (flag::KERNEL_ONLY | flag::TX_RING | flag::TX_UNSENT) == flag::KERNEL_ONLY
        && c.is_attached()
    {
        crate::errno::keep(|| attach::demote(index, c));
    }
    c
}

/// A forked child touches a connection that its parent has attached. Nobody can ring the child: what we write
/// goes by kernel from here on, and what we read once the ring is empty ([`is_inherited`]).
#[cold]
fn disinherit(index: u32, c: &'static Conn) {
    let fd = arena::local(index).fd.load(Relaxed) as i32;
    if c.raise(flag::KERNEL_ONLY) || c.has(flag::TX_RING) {
        crate::errno::keep(|| send::tx_to_kernel(c, fd, Some(sidestep_abi::Reason::Shared)));
    }
}

/// Whether another process of the family has attached the connection.
pub fn is_inherited(c: &Conn) -> bool {
    c.owner.load(Relaxed) != arena::me().unwrap_or(u32::MAX)
}

/// Runs a native call with the gate held, so that nobody attaches meanwhile. None: it is attached already.
#[inline]
pub fn natively<T>(index: u32, c: &Conn, call: impl FnOnce() -> T) -> Option<T> {
    if c.is_attached() {
        return None;
    }
    debts::settle();
    // SYNC gate: we enter, then look at the state; the attacher sets the state, then looks at the gate.
    let number = enter_gate(index, c);
    let result = (c.state.load(SeqCst) != state::ATTACHED).then(call);
    leave_gate(index, c, number);
    result
}

/// A kernel call on the connection begins: until [`leave_gate`] nobody attaches it.
#[inline]
pub fn enter_gate(index: u32, c: &Conn) -> u32 {
    let number = c.gate.enter();
    debts::owe(Debt::Gate(index, number));
    number
}

#[inline]
pub fn leave_gate(index: u32, c: &Conn, number: u32) {
    debts::paid(Debt::Gate(index, number));
    c.gate.leave(number);
}
