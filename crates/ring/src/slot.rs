//! One connection as a whole: its slot from assignment to release, and holds.

use crate::{counters, side};
use sidestep_abi::Reason;
use sidestep_abi::link::{Counters, Reader, Side, Slot, UNUSED, Writer};
use sidestep_abi::sync::AtomicU32;
use sidestep_abi::sync::Ordering::{Relaxed, SeqCst};

/// Makes the slot as if it had never carried anything. Only for the broker, while nobody uses the slot.
pub fn reset(slot: &Slot) {
    slot.writer.iter().for_each(reset_writer);
    slot.reader.iter().for_each(reset_reader);
    slot.side.iter().for_each(reset_side);
    slot.counters.iter().for_each(reset_counters);
    for word in [&slot.hold, &slot.parked, &slot.wanted, &slot.socket_held] {
        word.store(0, SeqCst);
    }
    slot.written_before.store(0, SeqCst);
}

fn reset_writer(writer: &Writer) {
    for word in [
        &writer.tail,
        &writer.base,
        &writer.ring_from,
        &writer.news_at,
        &writer.resume,
        &writer.copied,
        &writer.sent_to,
    ] {
        word.store(0, Relaxed);
    }
    for word in [&writer.epoch, &writer.wants_space, &writer.fin, &writer.complete] {
        word.store(0, Relaxed);
    }
}

/// Makes the reader's words as if no stretch had begun.
pub fn reset_reader(reader: &Reader) {
    reader.head.store(UNUSED, Relaxed);
}

fn reset_side(side: &Side) {
    side.doorbells.store(0, Relaxed);
    for word in [&side.ready, &side.seen_epoch, &side.froze, &side.released, &side.sends, &side.number, &side.away] {
        word.store(0, Relaxed);
    }
}

fn reset_counters(counters: &Counters) {
    for word in [&counters.kernel_tx, &counters.kernel_rx, &counters.ring_tx, &counters.ring_rx] {
        word.store(0, Relaxed);
    }
    counters.reason.store(0, Relaxed);
}

/// The broker's bit of the word `hold`. The next two are those of the sides.
const BROKER: u32 = 1;

/// Sets whether the connection is held on the kernel. For the broker.
pub fn set_hold(slot: &Slot, hold: bool) {
    put(&slot.hold, BROKER, hold);
}

/// Sets whether side `side` holds the connection on the kernel, as the operator wants it. For a side whose broker is gone. What
/// that broker or the other side has set stays.
pub fn set_hold_of_side(slot: &Slot, side: usize, hold: bool) {
    put(&slot.hold, BROKER << (1 + side), hold);
}

fn put(word: &AtomicU32, bit: u32, on: bool) {
    if on {
        word.fetch_or(bit, SeqCst);
    } else {
        word.fetch_and(!bit, SeqCst);
    }
}

/// Whether the broker, or a side in its place, holds the connection on the kernel.
pub fn is_held(slot: &Slot) -> bool {
    slot.hold.load(Relaxed) != 0
}

/// Stores how often the kernel's socket has been parked or given back (odd: parked). For the stack, which counts from 0.
pub fn set_parked(slot: &Slot, parked: u32) {
    // SYNC parked: the stack stores it before it touches the socket, and again after it has given the connection back. A reader
    // that finds the same even number before and after a call knows that the socket was not parked during the call.
    slot.parked.store(parked, SeqCst);
}

/// How often the kernel's socket has been parked or given back. Odd: it is parked.
#[inline]
pub fn parked(slot: &Slot) -> u32 {
    // SYNC parked
    slot.parked.load(SeqCst)
}

/// What the program wants of the stack.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u32)]
pub enum Wish {
    /// Nothing.
    None,
    /// The kernel's socket, for now.
    Socket,
    /// The slot as well: it will not use a ring again.
    Slot,
}

/// Asks the stack. The caller then rings the stack's doorbell.
pub fn wish(slot: &Slot, wish: Wish) {
    slot.wanted.fetch_max(wish as u32, SeqCst);
}

/// What the program wants. For the stack.
pub fn wished(slot: &Slot) -> Wish {
    match slot.wanted.load(SeqCst) {
        0 => Wish::None,
        1 => Wish::Socket,
        _ => Wish::Slot,
    }
}

/// The stack has given the connection back, as the program wanted, and will take it again.
pub fn grant_socket(slot: &Slot) {
    let _ = slot.wanted.compare_exchange(Wish::Socket as u32, Wish::None as u32, SeqCst, SeqCst);
}

/// The stack has a copy of the socket from now on. `number`: not 0, and one that no earlier connection of the slot has had.
pub fn hold_socket(slot: &Slot, number: u32) {
    slot.socket_held.store(number, SeqCst);
}

/// A process of the stack has closed its copy. If the slot has another connection by now, that was an earlier one's.
pub fn let_go_of_socket(slot: &Slot, number: u32) {
    let _ = slot.socket_held.compare_exchange(number, 0, SeqCst, SeqCst);
}

/// Whether the stack has a copy of the socket.
pub fn is_socket_held(slot: &Slot) -> bool {
    slot.socket_held.load(SeqCst) != 0
}

/// For the stack, before it says that the socket is no longer parked: see [`Slot::written_before`].
pub fn set_written_before(slot: &Slot, bytes: u64) {
    slot.written_before.store(bytes, SeqCst);
}

/// What the program adds to the kernel's count of written bytes.
pub fn written_before(slot: &Slot) -> u64 {
    slot.written_before.load(SeqCst)
}

/// Whether one of the two sides may wait where no doorbell is heard.
pub fn is_away(slot: &Slot) -> bool {
    slot.side.iter().any(side::is_away)
}

/// Whether side `side` has released the slot, or its process has ended.
pub fn is_released(slot: &Slot, side: usize) -> bool {
    slot.side[side].released.load(SeqCst) != 0
}

/// Why side `side`, which is the stack's, has let go of a connection that may be offered again later: it has ended, or was killed, or
/// the messages are long. The kernel has the connection by then, and no process of the stack that lives has a copy of its socket.
pub fn let_go(slot: &Slot, side: usize) -> Option<Reason> {
    if !is_released(slot, side) {
        return None;
    }
    let reason = counters::load(&slot.counters[side]).reason;
    if reason == Reason::Bulk as u32 && !is_socket_held(slot) {
        return Some(Reason::Bulk);
    }
    // Whoever restores the connection of a stack that was killed may be killed, too, and another process goes on: only an even
    // number says that the kernel has the connection.
    (reason == Reason::StackEnded as u32 && parked(slot).is_multiple_of(2)).then_some(Reason::StackEnded)
}

/// Whether side `side`, which is the stack's, would let go of the connection, since the messages are long, and the program has not asked
/// it to. The stack does not let go by itself: a slot that only one side has released is memory that the broker owes.
pub fn would_let_go(slot: &Slot, side: usize) -> bool {
    counters::load(&slot.counters[side]).reason == Reason::Bulk as u32 && wished(slot) != Wish::Slot
}

/// Records that side `side` has released the slot. For the broker.
pub fn set_released(slot: &Slot, side: usize) {
    slot.side[side].released.store(1, SeqCst);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_connection_stays_held_while_the_broker_or_a_side_holds_it() {
        let slot = Slot::default();
        set_hold_of_side(&slot, 0, true);
        set_hold_of_side(&slot, 1, true);
        set_hold(&slot, true);
        set_hold_of_side(&slot, 0, false);
        set_hold(&slot, false);
        assert!(is_held(&slot), "side 1 has not changed its mind");
        set_hold(&slot, true);
        set_hold_of_side(&slot, 1, false);
        assert!(is_held(&slot), "the broker has not");
        set_hold(&slot, false);
        assert!(!is_held(&slot));
    }

    #[test]
    fn a_connection_that_the_stack_has_let_go_of_is_free_of_its_copies_of_the_socket() {
        let slot = Slot::default();
        hold_socket(&slot, 7);
        counters::set_reason(&slot.counters[0], Reason::Bulk);
        assert_eq!(let_go(&slot, 0), None, "the stack may take it yet");
        set_released(&slot, 0);
        assert_eq!(let_go(&slot, 0), None, "the program's close would not end it");
        let_go_of_socket(&slot, 7);
        assert_eq!(let_go(&slot, 0), Some(Reason::Bulk));
        counters::set_reason(&slot.counters[0], Reason::KernelOnly);
        assert_eq!(let_go(&slot, 0), None, "it would be declined again");
        hold_socket(&slot, 7);
        counters::set_reason(&slot.counters[0], Reason::StackEnded);
        assert_eq!(
            let_go(&slot, 0),
            Some(Reason::StackEnded),
            "of a stack that was killed nobody says that its copies are closed"
        );
    }
}
