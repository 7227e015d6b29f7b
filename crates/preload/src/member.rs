//! Membership with the broker: joins, makes offers, and handles the broker's messages. Never waits for the broker.

use crate::broker::{self, HEARD, LOCK, SOCKET, SPOKEN};
use crate::fdtable::{self, Kind};
use crate::record::Conn;
use crate::{arena, attach, counters, earlier, lineage, link, log, pending_releases, settings, thread, waiter};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use sidestep_abi::msg::{Kind as MsgKind, Msg};
use sidestep_abi::{Reason, VERSION};
use sidestep_conn::Event;
use sidestep_ring::page;
use sidestep_sys::lock::Taken;
use sidestep_sys::{Errno, arch, clock, control, fd, limit};

/// 1: Welcome has been received, and the page is shared.
static WELCOME: AtomicU32 = AtomicU32::new(0);
/// Time (ticks) of the next try to join, after a failure; of the next receive, while Welcome is missing.
static NOT_BEFORE: AtomicU64 = AtomicU64::new(0);
/// Time (ticks) of the next look whether the broker is still there, or another one.
static NEXT_LOOK: AtomicU64 = AtomicU64::new(0);
/// The process is a server: it is a member even while it has nothing to offer.
static STAYS: AtomicBool = AtomicBool::new(false);

const RETRY_US: u64 = 1_000_000;
const LISTEN_US: u64 = 20;
/// Least time between two looks for the broker.
const LOOK_US: u64 = 1_000_000;

/// Receives pending messages of the broker. One load if there are none.
#[inline]
pub fn check() {
    if WELCOME.load(Relaxed) != 0 {
        if page::announced(counters::page()) != HEARD.load(Relaxed) {
            catch_up();
        }
    } else if SOCKET.load(Relaxed) >= 0 && arch::ticks() >= NOT_BEFORE.load(Relaxed) {
        NOT_BEFORE.store(arch::ticks() + clock::ticks_of_us(LISTEN_US), Relaxed);
        listen();
    } else if STAYS.load(Relaxed) {
        joined();
    }
}

/// As [`check`], before a wait. A process whose connections last may make no call by which it would notice that its broker is gone,
/// and that there is another one: it looks now and then. `now`: the time (ticks). The caller holds no lock.
#[inline]
pub fn keep_up(now: u64) {
    check();
    let next = NEXT_LOOK.load(Relaxed);
    if now >= next {
        look(now, next);
    }
}

#[cold]
fn look(now: u64, next: u64) {
    let later = now + clock::ticks_of_us(LOOK_US + spread_us(now));
    let is_first = NEXT_LOOK.compare_exchange(next, later, Relaxed, Relaxed).is_ok();
    // A child that the library did not see has its parent's control socket, or another descriptor of that number.
    if !is_first || !lineage::is_own() {
        return;
    }
    if SOCKET.load(Relaxed) >= 0 {
        broker::ask_again();
        check();
        earlier::tell();
    } else if earlier::may_exist() {
        joined();
    }
}

/// Less than 1.05 s, and another time at each look: a new broker is not joined by a thousand processes at once because they have
/// begun to wait at once.
fn spread_us(now: u64) -> u64 {
    now.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44
}

#[cold]
fn catch_up() {
    if listen() && broker::claim_settles_soon() {
        settle();
    }
}

/// Whether [`check`] may have something to do although no connection exists.
#[inline]
pub fn stays() -> bool {
    STAYS.load(Relaxed)
}

/// Joins, now and after every fork. A server may make no call for longer than a broker waits for members.
pub fn stay() {
    if settings::active() {
        STAYS.store(true, Relaxed);
        check();
    }
}

/// Asks the broker to pair this connection. A passive offer is paired only with one that is not. Err: why not now.
pub fn offer(index: u32, c: &Conn, socket_fd: i32, passive: bool) -> Result<(), Reason> {
    joined().ok_or(Reason::NoBroker)?;
    c.offered_in.store(broker::link_era(), Relaxed);
    c.offered_at.store(arch::ticks(), Relaxed);
    let cookie = sidestep_sys::tcp::cookie(socket_fd).map_err(|_| Reason::Foreign)?;
    let arg2 = u64::from(passive);
    let msg = Msg { offer: broker::offer_number(index, c), arg: cookie, arg2, ..Msg::new(MsgKind::Offer) };
    broker::send(&msg, Some(socket_fd)).map_err(|_| Reason::NoBroker)
}

/// The broker cannot serve this process, or not in this version: then it is asked once more, in its own version.
fn rejected(msg: &Msg) {
    let spoken = SPOKEN.load(Relaxed);
    let is_same = msg.arg == u64::from(spoken);
    leave();
    if !is_same && spoken == VERSION && msg.arg == u64::from(VERSION - 1) {
        SPOKEN.store(VERSION - 1, Relaxed);
        NOT_BEFORE.store(0, Relaxed);
        return;
    }
    counters::count(if is_same { Reason::UserPair } else { Reason::Version });
    NOT_BEFORE.store(u64::MAX, Relaxed);
}

/// The control socket. Joins first if necessary. None: that is not possible now.
fn joined() -> Option<i32> {
    let broker = SOCKET.load(Acquire);
    if broker >= 0 {
        return Some(broker);
    }
    if arch::ticks() < NOT_BEFORE.load(Relaxed) || LOCK.lock(thread::tid()) == Taken::Reentered {
        return None;
    }
    if SOCKET.load(Acquire) < 0 {
        join();
    }
    LOCK.unlock();
    Some(SOCKET.load(Acquire)).filter(|s| *s >= 0)
}

/// The caller holds the lock.
fn join() {
    match control::connect(settings::get().broker.bytes()) {
        Ok(broker) => {
            fdtable::set(broker, Kind::Own);
            broker::begin_era();
            let (ring_size, descriptors) = (settings::get().ring_size, limit::descriptor_limit());
            // Peers may take at most half of the process's descriptors.
            let version = SPOKEN.load(Relaxed);
            let hello = Msg { version, arg: u64::from(ring_size), arg2: descriptors / 2, ..Msg::new(MsgKind::Hello) };
            let _ = control::send(broker, &hello, None);
            SOCKET.store(broker, Release);
            waiter::announce_all();
            link::remove_idle_ones(|era| era != broker::link_era());
        }
        Err(Errno(e)) => {
            log::say(&[b"no broker, errno "], e as u64);
            NOT_BEFORE.store(arch::ticks() + clock::ticks_of_us(RETRY_US), Relaxed);
        }
    }
}

/// The broker is gone. Paired connections go on, and a later call looks for a new broker. The caller holds the lock.
fn leave() {
    let broker = SOCKET.swap(-1, AcqRel);
    if WELCOME.swap(0, Relaxed) != 0 {
        SPOKEN.store(VERSION, Relaxed); // the next broker may be of another release
    }
    if broker >= 0 {
        log::say(&[b"broker gone, control socket "], broker as u64);
        fdtable::drop_own(broker);
        pending_releases::cancel();
        // If a connection ended after the broker did, and before this process noticed, its link is still there without a
        // connection.
        link::remove_idle_ones(|_| true);
        NOT_BEFORE.store(arch::ticks() + clock::ticks_of_us(RETRY_US), Relaxed);
    }
}

/// With pairing in sync: as [`await_broker`]. Otherwise nothing.
#[cold]
pub fn settle() {
    if settings::get().pairs_in_sync {
        await_broker(SETTLE_NS);
    }
}

/// Waits until the broker has handled everything that this process has sent, and so holds no socket of its, unless it has lent it to the
/// stack; but not longer than that. The caller must not hold the lock of an epoll set: slots that arrive meanwhile take it.
#[cold]
pub fn await_broker(ns: u64) {
    let until = clock::monotonic_ns() + ns;
    let socket = SOCKET.load(Relaxed);
    let Some(number) = broker::ask_whether_settled() else { return };
    while !broker::has_settled(number) && SOCKET.load(Relaxed) == socket && clock::monotonic_ns() < until {
        if !listen() {
            return; // called from within `listen`
        }
        if !broker::has_settled(number) {
            clock::nap_us(SETTLE_NAP_US);
        }
    }
}

/// Longest wait with pairing in sync.
const SETTLE_NS: u64 = 2_000_000_000;
const SETTLE_NAP_US: u64 = 20;

/// Sends what is due, and receives. False: this thread is within `listen` already.
#[cold]
fn listen() -> bool {
    if LOCK.lock(thread::tid()) == Taken::Reentered {
        return false;
    }
    let pending = page::announced(counters::page());
    if broker::owes() {
        pending_releases::tell();
        tell_untold();
    }
    let all = hear_all();
    HEARD.store(pending, SeqCst);
    let is_held_anew = earlier::obey();
    if !all || broker::owes() {
        broker::ask_again();
    }
    LOCK.unlock();
    if is_held_anew {
        earlier::attend();
    }
    true
}

/// Receives all messages. False: there may be more, but receiving failed for the moment.
fn hear_all() -> bool {
    loop {
        match control::receive(SOCKET.load(Relaxed)) {
            Ok((msg, passed)) => hear(&msg, passed),
            Err(Errno(libc::EAGAIN)) => return true,
            // The kernel reports the reset first, and queued messages after it.
            Err(Errno(libc::ECONNRESET)) => {}
            Err(e) if e.passes() => return false,
            Err(_) => {
                leave();
                return true;
            }
        }
    }
}

fn tell_untold() {
    let mut places = broker::claim_untold();
    while places != 0 {
        let p = places.trailing_zeros();
        places &= places - 1;
        broker::announce(p, waiter::doorbell(p));
    }
}

fn hear(msg: &Msg, passed: Option<i32>) {
    let era = broker::link_era();
    match (msg.kind(), passed) {
        (Some(MsgKind::Welcome), Some(page)) => {
            if counters::share(page) {
                WELCOME.store(1, Relaxed);
                earlier::begin();
            }
            fd::close(page);
        }
        (Some(MsgKind::Link), Some(memory)) => {
            if let Err(Errno(e)) = link::add(memory, msg, era) {
                log::say(&[b"link not taken, errno "], e as u64);
            }
            fd::close(memory);
        }
        // The kernel had no descriptor left for the link's memory.
        (Some(MsgKind::Link), None) => UNRECEIVED.store(u64::from(msg.link), Relaxed),
        (Some(MsgKind::PeerDoorbell), Some(eventfd)) => match (link::find(msg.link, msg.side, era), fd::raise(eventfd))
        {
            (Some(index), Ok(high)) => link::get(index).set_peer_doorbell(msg.place, high),
            (None, Ok(high)) => fd::close(high),
            (_, Err(_)) => {}
        },
        (Some(MsgKind::Slot), None) => given(msg, era),
        (Some(MsgKind::Again), None) => again(msg),
        (Some(MsgKind::Refused), None) => refused(msg),
        (Some(MsgKind::Unlink), None) => {
            if let Some(index) = link::find(msg.link, msg.side, era) {
                link::remove(index);
            }
        }
        (Some(MsgKind::Reject), None) => rejected(msg),
        (Some(MsgKind::Settled), None) => broker::note_settled(msg.arg),
        (_, passed) => {
            passed.inspect(|f| fd::close(*f));
        }
    }
}

/// Index, generation and record of the offered connection. None: the record no longer has that offer.
fn offered(number: u64) -> Option<(u32, u32, &'static Conn)> {
    let index = number as u32;
    if index as usize >= arena::CONNS {
        return None;
    }
    let c = arena::conn(index);
    let (generation, phase) = c.phase.now();
    (generation == (number >> 32) as u32 && phase.is_offered()).then_some((index, generation, c))
}

/// The last link whose memory could not be received. Link numbers have 32 bits, so the initial value is none.
static UNRECEIVED: AtomicU64 = AtomicU64::new(u64::MAX);

fn given(msg: &Msg, era: u32) {
    let found = link::find(msg.link, msg.side, era);
    match (found, offered(msg.offer)) {
        (Some(link), Some((index, generation, c))) => attach::assign(index, (c, generation), link, msg.slot),
        (None, Some((_, generation, c))) => {
            if c.phase.go_in(generation, Event::Lose).is_none() {
                return; // another thread has closed the connection, and has withdrawn the offer
            }
            let no_number = UNRECEIVED.load(Relaxed) == u64::from(msg.link);
            c.keep_on_kernel(if no_number { Reason::FdLimit } else { Reason::Memory });
            // The slot belongs to no link here, so nobody would remember to release it later.
            if !broker::release((msg.link, msg.side, era), msg.slot) {
                leave();
            }
        }
        // This process has withdrawn the offer, but the broker paired it before. The message names the offer and not the slot,
        // which may be another connection's by now.
        (_, None) => {
            let again = Msg { offer: msg.offer, ..Msg::new(MsgKind::Withdraw) };
            let _ = broker::send(&again, None);
        }
    }
}

/// The broker asks for the socket again. It compares the cookie in `arg` with the new socket's: the descriptor may be another
/// socket's by the time the message is sent.
fn again(msg: &Msg) {
    if let Some((index, generation, c)) = offered(msg.offer) {
        let offer = Msg { offer: msg.offer, arg: msg.arg, ..Msg::new(MsgKind::Offer) };
        let socket = arena::local(index).fd.load(Relaxed) as i32;
        c.offered_at.store(arch::ticks(), Relaxed);
        if broker::send(&offer, Some(socket)).is_err() {
            // A later operation makes a new offer.
            c.phase.go_in(generation, Event::Lose);
        }
    }
}

fn refused(msg: &Msg) {
    if let Some((_, generation, c)) = offered(msg.offer)
        && c.phase.go_in(generation, Event::Lose).is_some()
    {
        c.keep_on_kernel(Reason::from_code(msg.arg as u8).unwrap_or(Reason::PeerAbsent));
    }
}

/// Ends the membership for good.
pub fn quit() {
    STAYS.store(false, Relaxed);
    let taken = LOCK.lock(thread::tid());
    leave();
    NOT_BEFORE.store(u64::MAX, Relaxed);
    if taken != Taken::Reentered {
        LOCK.unlock();
    }
}

/// In a forked child: the membership is the parent's.
pub fn reset_in_child() {
    fdtable::drop_own(broker::reset_in_child());
    WELCOME.store(0, Relaxed);
    NOT_BEFORE.store(0, Relaxed);
    pending_releases::reset_in_child();
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn make_look_due() {
        NEXT_LOOK.store(0, Relaxed);
    }

    pub fn has_looked() -> bool {
        NEXT_LOOK.load(Relaxed) != 0
    }

    #[test]
    fn processes_that_look_at_once_look_at_different_times_the_next_time() {
        let mut tenths = [0; 10];
        for ticks in 0..1000 {
            tenths[(10 * spread_us((1 << 50) + ticks) / (1 << 20)) as usize] += 1;
        }
        assert!(tenths.iter().all(|n| (80..=120).contains(n)), "{tenths:?}");
    }
}
