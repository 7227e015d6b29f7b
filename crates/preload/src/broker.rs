//! The control socket to the broker, and what is said there. What the broker says is heard by `member`.

use crate::critical::Lock;
use crate::record::Conn;
use crate::{counters, settings};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::*};
use sidestep_abi::msg::{Kind, Msg};
use sidestep_ring::page;
use sidestep_sys::{Errno, Result, control};

/// The control socket; -1: none.
pub static SOCKET: AtomicI32 = AtomicI32::new(-1);
/// Counts connections to brokers; link numbers are only meaningful within one.
static ERA: AtomicU32 = AtomicU32::new(0);
/// What the page's `pending` said when the broker was last heard.
pub static HEARD: AtomicU32 = AtomicU32::new(0);
/// Held by whoever joins, hears the broker, or changes links.
pub static LOCK: Lock = Lock::new();

/// Whether the broker could not be told something because its socket was full (`pending_releases`).
static OWES: AtomicBool = AtomicBool::new(false);
/// Places whose doorbell it could not be told of.
static UNTOLD: AtomicU64 = AtomicU64::new(0);

/// Whether the broker is to be waited for after it has been heard next ([`settle_soon`]).
static SETTLES_SOON: AtomicBool = AtomicBool::new(false);

/// By which number links of the present broker go.
pub fn link_era() -> u32 {
    ERA.load(Acquire)
}

/// Which broker we are a member of, by a number of our own; 0: of none.
#[inline]
pub fn era() -> u32 {
    if SOCKET.load(Acquire) < 0 { 0 } else { ERA.load(Acquire) }
}

/// A new broker.
pub fn begin_era() {
    ERA.fetch_add(1, Relaxed);
}

/// Has the next `member::check` hear the broker, which begins with telling it what is owed.
pub fn ask_again() {
    HEARD.store(page::announced(counters::page()).wrapping_sub(1), SeqCst);
}

/// With pairing in sync: has the next `member::check` wait until the broker has worked off what this process has sent.
pub fn settle_soon() {
    if settings::get().pairs_in_sync {
        SETTLES_SOON.store(true, Relaxed);
        ask_again();
    }
}

pub fn claim_settles_soon() -> bool {
    SETTLES_SOON.swap(false, Relaxed)
}

/// The number of a connection's offer: index and generation, so that a late answer never meets a record in reuse.
pub fn offer_number(index: u32, c: &Conn) -> u64 {
    u64::from(c.phase.generation()) << 32 | u64::from(index)
}

/// A passive offer is passive no more. False: not now.
pub fn press(index: u32, c: &Conn) -> bool {
    let msg = Msg { offer: offer_number(index, c), ..Msg::new(Kind::Press) };
    send(&msg, None).is_ok()
}

/// Takes an offer back. False: not now, because the broker has not read what it was sent before.
pub fn withdraw(index: u32, c: &Conn) -> bool {
    let msg = Msg { offer: offer_number(index, c), ..Msg::new(Kind::Withdraw) };
    !send(&msg, None).is_err_and(Errno::passes)
}

/// Gives a slot back, if the broker that gave it is still there. False: not now.
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

/// The places whose doorbells are to be announced again, a bit each.
pub fn claim_untold() -> u64 {
    UNTOLD.swap(0, Relaxed)
}

/// A broker that has hung up is left when it is heard next: perhaps it has said why.
pub fn send(msg: &Msg, with: Option<i32>) -> Result<()> {
    let broker = SOCKET.load(Acquire);
    if broker < 0 {
        return Err(Errno(libc::ENOTCONN));
    }
    let sent = control::send(broker, msg, with);
    if matches!(sent, Err(Errno(libc::EPIPE | libc::ECONNRESET | libc::ENOTCONN))) {
        ask_again();
    }
    sent
}

/// The broker is to be told something later, with our next call: forgotten, it would be taken for as long as we live.
#[cold]
pub fn owe() {
    OWES.store(true, SeqCst);
    ask_again();
}

#[inline]
pub fn owes() -> bool {
    OWES.load(SeqCst)
}

/// Whether anything was owed; nothing is from now on.
pub fn claim_owes() -> bool {
    OWES.swap(false, SeqCst)
}

/// Takes each bit for which `told` is true out of the word. False: one was not.
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

/// In a forked child: the membership is the parent's. Returns its socket.
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
