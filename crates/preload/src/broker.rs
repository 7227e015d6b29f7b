//! The control socket to the broker, and the messages sent there. `member` handles the messages that come back.

use crate::critical::Lock;
use crate::record::Conn;
use crate::{counters, settings};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::*};
use sidestep_abi::VERSION;
use sidestep_abi::msg::{Kind, Msg};
use sidestep_ring::page;
use sidestep_sys::{Errno, Result, control};

/// The control socket; -1: none.
pub static SOCKET: AtomicI32 = AtomicI32::new(-1);
/// The version of the protocol that the broker speaks.
pub static SPOKEN: AtomicU32 = AtomicU32::new(VERSION);
/// Counts connections to brokers; link numbers are only meaningful within one.
static ERA: AtomicU32 = AtomicU32::new(0);
/// Value of `pending` in the shared page when this process last received messages of the broker.
pub static HEARD: AtomicU32 = AtomicU32::new(0);
/// Held while joining the broker, receiving its messages, or changing links.
pub static LOCK: Lock = Lock::new();

/// Whether a message is due because the broker's socket was full (`pending_releases`).
static OWES: AtomicBool = AtomicBool::new(false);
/// Waiters whose doorbell could not be announced; a bit each.
static UNTOLD: AtomicU64 = AtomicU64::new(0);

/// Whether the next `member::check` waits for the broker ([`settle_soon`]).
static SETTLES_SOON: AtomicBool = AtomicBool::new(false);

/// The era in which the present broker's link numbers are valid.
pub fn link_era() -> u32 {
    ERA.load(Acquire)
}

/// Number of the present membership, counted by this process; 0: no membership.
#[inline]
pub fn era() -> u32 {
    if SOCKET.load(Acquire) < 0 { 0 } else { ERA.load(Acquire) }
}

/// This process has joined a broker.
pub fn begin_era() {
    ERA.fetch_add(1, Relaxed);
}

/// Makes the next `member::check` talk to the broker: it first sends what is due, then receives.
pub fn ask_again() {
    HEARD.store(page::announced(counters::page()).wrapping_sub(1), SeqCst);
}

/// With pairing in sync: makes the next `member::check` wait until the broker has handled everything that this process has
/// sent.
pub fn settle_soon() {
    if settings::get().pairs_in_sync {
        SETTLES_SOON.store(true, Relaxed);
        ask_again();
    }
}

pub fn claim_settles_soon() -> bool {
    SETTLES_SOON.swap(false, Relaxed)
}

/// Numbers of the last question whether the broker has handled everything, and of its last answer.
static ASKED: AtomicU64 = AtomicU64::new(0);
static SETTLED: AtomicU64 = AtomicU64::new(0);

/// None: it cannot be asked.
pub fn ask_whether_settled() -> Option<u64> {
    let number = ASKED.fetch_add(1, Relaxed) + 1;
    let msg = Msg { arg: number, ..Msg::new(Kind::Settle) };
    send(&msg, None).ok().map(|()| number)
}

pub fn has_settled(number: u64) -> bool {
    SETTLED.load(Relaxed) >= number
}

pub fn note_settled(number: u64) {
    SETTLED.fetch_max(number, Relaxed);
}

/// Number of a connection's offer: record index and generation. A late answer never reaches the record's next connection.
pub fn offer_number(index: u32, c: &Conn) -> u64 {
    u64::from(c.phase.generation()) << 32 | u64::from(index)
}

/// Tells the broker that a passive offer is passive no more. False: the broker's socket is full.
pub fn press(index: u32, c: &Conn) -> bool {
    let msg = Msg { offer: offer_number(index, c), ..Msg::new(Kind::Press) };
    send(&msg, None).is_ok()
}

/// Takes an offer back. False: the broker's socket is full.
pub fn withdraw(index: u32, c: &Conn) -> bool {
    let msg = Msg { offer: offer_number(index, c), ..Msg::new(Kind::Withdraw) };
    !send(&msg, None).is_err_and(Errno::passes)
}

/// Gives a slot back, if the broker that assigned it is still there. False: the broker's socket is full.
pub fn release(id: (u32, u32, u32), slot: u32) -> bool {
    let (link, side, era) = id;
    let msg = Msg { link, slot, side, ..Msg::new(Kind::Release) };
    era != ERA.load(Relaxed) || !send(&msg, None).is_err_and(Errno::passes)
}

/// Gives a doorbell to the broker, which lets all present and future peers ring it.
pub fn announce(place: u32, doorbell: i32) {
    let msg = Msg { place, ..Msg::new(Kind::Doorbell) };
    if send(&msg, Some(doorbell)).is_err_and(Errno::passes) {
        UNTOLD.fetch_or(1 << place, Relaxed);
        owe();
    }
}

/// Takes the bits of the waiters whose doorbells are due to be announced.
pub fn claim_untold() -> u64 {
    UNTOLD.swap(0, Relaxed)
}

/// If the broker has hung up, membership ends only when its messages are received next: the last one may say why.
pub fn send(msg: &Msg, with: Option<i32>) -> Result<()> {
    let broker = SOCKET.load(Acquire);
    if broker < 0 {
        return Err(Errno(libc::ENOTCONN));
    }
    let sent = control::send(broker, &Msg { version: SPOKEN.load(Relaxed), ..*msg }, with);
    if matches!(sent, Err(Errno(libc::EPIPE | libc::ECONNRESET | libc::ENOTCONN))) {
        ask_again();
    }
    sent
}

/// A message to the broker is due: the next `member::check` sends it. A release that is never sent would keep its slot taken
/// for the life of this process.
#[cold]
pub fn owe() {
    OWES.store(true, SeqCst);
    ask_again();
}

#[inline]
pub fn owes() -> bool {
    OWES.load(SeqCst)
}

/// Whether a message was due. Resets the mark.
pub fn claim_owes() -> bool {
    OWES.swap(false, SeqCst)
}

/// Removes each bit of the word for which `told` returns true. False: at least one bit remains.
pub fn tell_each(word: &AtomicU64, mut told: impl FnMut(u32) -> bool) -> bool {
    let mut bits = word.swap(0, AcqRel);
    while bits != 0 {
        if !told(bits.trailing_zeros()) {
            word.fetch_or(bits, AcqRel);
            return false;
        }
        bits &= bits - 1;
    }
    true
}

/// In a forked child: the membership is the parent's. Returns the parent's socket.
pub fn reset_in_child() -> i32 {
    UNTOLD.store(0, Relaxed);
    HEARD.store(0, Relaxed);
    LOCK.reset_in_child();
    SOCKET.swap(-1, Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_told_is_owed_on() {
        let word = AtomicU64::new(0b1_0110);
        let mut told = 0;
        assert!(!tell_each(&word, |bit| {
            told += 1;
            bit < 2
        }));
        assert_eq!((told, word.load(Relaxed)), (2, 0b1_0100));
        assert!(tell_each(&word, |_| true));
        assert_eq!(word.load(Relaxed), 0);
    }
}
