//! Our membership with the broker: asks for pairs, hears what was paired. Never waits for it.

use crate::critical::Lock;
use crate::fdtable::{self, Kind};
use crate::record::{Conn, state};
use crate::{arena, attach, link, log, owed, place, report, settings, thread};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::*};
use sidestep_abi::Reason;
use sidestep_abi::msg::{Kind as MsgKind, Msg};
use sidestep_ring::page;
use sidestep_sys::lock::Taken;
use sidestep_sys::{Errno, arch, clock, control, fd, limit};

/// The control socket; -1: none.
static SOCKET: AtomicI32 = AtomicI32::new(-1);
/// Counts connections to brokers; link numbers are only meaningful within one.
static ERA: AtomicU32 = AtomicU32::new(0);
/// 1: Welcome has come, the page is shared.
static WELCOME: AtomicU32 = AtomicU32::new(0);
/// What the page's `pending` said when we last listened.
static HEARD: AtomicU32 = AtomicU32::new(0);
/// Ticks before which nothing is tried again: after a failure, or while no Welcome has come.
static NOT_BEFORE: AtomicU64 = AtomicU64::new(0);
/// Places whose announcement did not fit into the socket.
static UNTOLD: AtomicU64 = AtomicU64::new(0);
/// The process serves: it is a member even while it has nothing to offer.
static STAYS: AtomicBool = AtomicBool::new(false);
static LOCK: Lock = Lock::new();

const RETRY_US: u64 = 1_000_000;
const LISTEN_US: u64 = 20;

/// Whether operator and broker let us begin stretches of ring.
#[inline]
pub fn holds() -> bool {
    page::is_held(report::page())
}

/// Hears what the broker has to say, if anything. One load when there is nothing.
#[inline]
pub fn check() {
    if WELCOME.load(Relaxed) != 0 {
        if page::announced(report::page()) != HEARD.load(Relaxed) {
            catch_up();
        }
    } else if SOCKET.load(Relaxed) >= 0 && arch::ticks() >= NOT_BEFORE.load(Relaxed) {
        NOT_BEFORE.store(arch::ticks() + clock::ticks_of_us(LISTEN_US), Relaxed);
        listen();
    } else if STAYS.load(Relaxed) {
        joined();
    }
}

#[cold]
fn catch_up() {
    if listen() && SETTLES_SOON.swap(false, Relaxed) {
        settle();
    }
}

/// Whether [`check`] may have something to do although there is no connection.
#[inline]
pub fn stays() -> bool {
    STAYS.load(Relaxed)
}

/// Joins, and joins again after every fork: a server may be silent for longer than a broker waits for members.
pub fn stay() {
    if settings::active() {
        STAYS.store(true, Relaxed);
        check();
    }
}

/// Asks the broker to pair this connection; a passive offer is paired only if the other end asks. Err: why not now.
pub fn offer(index: u32, c: &Conn, socket_fd: i32, passive: bool) -> Result<(), Reason> {
    let broker = joined().ok_or(Reason::NoBroker)?;
    c.offered_in.store(ERA.load(Acquire), Relaxed);
    let cookie = sidestep_sys::tcp::cookie(socket_fd).map_err(|_| Reason::Foreign)?;
    let arg2 = u64::from(passive);
    let msg = Msg { offer: number(index, c), arg: cookie, arg2, ..Msg::new(MsgKind::Offer) };
    send(broker, &msg, Some(socket_fd)).map_err(|_| Reason::NoBroker)
}

/// Which broker we are a member of, by a number of our own; 0: of none.
#[inline]
pub fn era() -> u32 {
    if SOCKET.load(Acquire) < 0 { 0 } else { ERA.load(Acquire) }
}

/// The offer's number: index and generation, so that a late answer never meets a record in reuse.
fn number(index: u32, c: &Conn) -> u64 {
    u64::from(c.generation.load(Relaxed)) << 32 | u64::from(index)
}

/// A passive offer is passive no more. False: not now.
pub fn press(index: u32, c: &Conn) -> bool {
    let msg = Msg { offer: number(index, c), ..Msg::new(MsgKind::Press) };
    send(SOCKET.load(Relaxed), &msg, None).is_ok()
}

/// Takes an offer back. False: not now, because the broker has not read what it was sent before.
pub fn tell_withdrawn(index: u32, c: &Conn) -> bool {
    let msg = Msg { offer: number(index, c), ..Msg::new(MsgKind::Withdraw) };
    !send(SOCKET.load(Relaxed), &msg, None).is_err_and(Errno::passes)
}

/// Gives a slot back, if the broker that gave it is still there. False: not now.
pub fn tell_released(id: (u32, u32, u32), slot: u32) -> bool {
    let (link, side, era) = id;
    let msg = Msg { link, slot, side, ..Msg::new(MsgKind::Release) };
    era != ERA.load(Relaxed) || !send(SOCKET.load(Relaxed), &msg, None).is_err_and(Errno::passes)
}

/// Has the next `check` come to `listen`, and so to what is owed.
pub fn look_again() {
    HEARD.store(page::announced(report::page()).wrapping_sub(1), SeqCst);
}

/// Gives a doorbell to the broker, which lets all present and future peers ring it.
pub fn announce(place: u32, doorbell: i32) {
    let broker = SOCKET.load(Relaxed);
    let msg = Msg { place, ..Msg::new(MsgKind::Doorbell) };
    if broker >= 0 && send(broker, &msg, Some(doorbell)).is_err_and(Errno::passes) {
        UNTOLD.fetch_or(1 << place, Relaxed);
        owed::note();
    }
}

fn send(broker: i32, msg: &Msg, with: Option<i32>) -> sidestep_sys::Result<()> {
    if broker < 0 {
        return Err(Errno(libc::ENOTCONN));
    }
    let sent = control::send(broker, msg, with);
    if matches!(sent, Err(Errno(libc::EPIPE | libc::ECONNRESET | libc::ENOTCONN))) {
        part(broker);
    }
    sent
}

/// More than a broker says to somebody who is not welcome.
const LAST_WORDS: u32 = 16;

/// The broker has hung up: perhaps it has said why. A reset is told before what was said.
#[cold]
fn part(broker: i32) {
    for _ in 0..LAST_WORDS {
        match control::receive(broker) {
            Ok((msg, None)) if msg.kind() == Some(MsgKind::Reject) => return rejected(&msg),
            Ok((_, passed)) => {
                passed.inspect(|f| fd::close(*f));
            }
            Err(Errno(libc::ECONNRESET | libc::EINTR)) => {}
            Err(_) => break,
        }
    }
    leave();
}

/// Not a broker for us: never asked again.
fn rejected(msg: &Msg) {
    let same = msg.arg == u64::from(sidestep_abi::VERSION);
    report::count(if same { Reason::UserPair } else { Reason::Version });
    leave();
    NOT_BEFORE.store(u64::MAX, Relaxed);
}

/// The control socket, connected now if need be and possible.
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

/// Under the lock.
fn join() {
    match control::connect(settings::get().broker.bytes()) {
        Ok(broker) => {
            fdtable::set(broker, Kind::Own);
            ERA.fetch_add(1, Relaxed);
            let (ring_size, descriptors) = (settings::get().ring_size, limit::descriptor_limit());
            // The program keeps half of its descriptors, whatever peers do.
            let hello = Msg { arg: u64::from(ring_size), arg2: descriptors / 2, ..Msg::new(MsgKind::Hello) };
            let _ = control::send(broker, &hello, None);
            SOCKET.store(broker, Release);
            place::announce_all();
            link::remove_idle_before(ERA.load(Relaxed));
        }
        Err(Errno(e)) => {
            log::say(&[b"no broker, errno "], e as u64);
            NOT_BEFORE.store(arch::ticks() + clock::ticks_of_us(RETRY_US), Relaxed);
        }
    }
}

/// The broker is gone. What has been paired goes on; a new one is looked for when next needed.
fn leave() {
    let broker = SOCKET.swap(-1, AcqRel);
    WELCOME.store(0, Relaxed);
    if broker >= 0 {
        log::say(&[b"broker gone, control socket "], broker as u64);
        link::drop_own(broker);
        owed::cancel();
        NOT_BEFORE.store(arch::ticks() + clock::ticks_of_us(RETRY_US), Relaxed);
    }
}

/// With pairing in sync: waits until the broker has worked off what this process has sent. Else nothing. Not to be called
/// with the lock of an epoll set, which is taken to hear of slots.
#[cold]
pub fn settle() {
    if !settings::get().pairs_in_sync {
        return;
    }
    let number = ASKED.fetch_add(1, Relaxed) + 1;
    let broker = SOCKET.load(Relaxed);
    let msg = Msg { arg: number, ..Msg::new(MsgKind::Settle) };
    let until = clock::monotonic_ns() + SETTLE_NS;
    if send(broker, &msg, None).is_err() {
        return;
    }
    while SETTLED.load(Relaxed) < number && SOCKET.load(Relaxed) == broker && clock::monotonic_ns() < until {
        if !listen() {
            return; // from within `listen`
        }
        if SETTLED.load(Relaxed) < number {
            clock::nap_us(SETTLE_NAP_US);
        }
    }
}

/// The same at the next [`check`].
pub fn settle_soon() {
    if settings::get().pairs_in_sync {
        SETTLES_SOON.store(true, Relaxed);
        look_again();
    }
}

static SETTLES_SOON: AtomicBool = AtomicBool::new(false);

/// Numbers of what was asked and answered last with [`settle`].
static ASKED: AtomicU64 = AtomicU64::new(0);
static SETTLED: AtomicU64 = AtomicU64::new(0);
/// A broker that does not answer for so long is not waited for.
const SETTLE_NS: u64 = 2_000_000_000;
const SETTLE_NAP_US: u64 = 20;

/// False: this thread listens already.
#[cold]
fn listen() -> bool {
    if LOCK.lock(thread::tid()) == Taken::Reentered {
        return false;
    }
    let pending = page::announced(report::page());
    if owed::any() {
        owed::tell();
        tell_untold();
    }
    let all = hear_all();
    HEARD.store(pending, SeqCst);
    if !all || owed::any() {
        look_again();
    }
    LOCK.unlock();
    true
}

/// False: there may be more, which could not be received just now.
fn hear_all() -> bool {
    loop {
        match control::receive(SOCKET.load(Relaxed)) {
            Ok((msg, passed)) => hear(&msg, passed),
            Err(Errno(libc::EAGAIN)) => return true,
            // Told before what was said; the next call brings that.
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
    let mut places = UNTOLD.swap(0, Relaxed);
    while places != 0 {
        let p = places.trailing_zeros();
        places &= places - 1;
        announce(p, place::doorbell(p));
    }
}

fn hear(msg: &Msg, passed: Option<i32>) {
    let era = ERA.load(Relaxed);
    match (msg.kind(), passed) {
        (Some(MsgKind::Welcome), Some(page)) => {
            if report::share(page) {
                WELCOME.store(1, Relaxed);
            }
            fd::close(page);
        }
        (Some(MsgKind::Link), Some(memory)) => {
            if let Err(Errno(e)) = link::add(memory, msg, era) {
                log::say(&[b"link not taken, errno "], e as u64);
            }
            fd::close(memory);
        }
        // The kernel had no number left for the descriptor.
        (Some(MsgKind::Link), None) => UNRECEIVED.store(u64::from(msg.link), Relaxed),
        (Some(MsgKind::PeerDoorbell), Some(eventfd)) => match (link::find(msg.link, msg.side, era), fd::raise(eventfd))
        {
            (Some(index), Ok(high)) => link::get(index).set_peer_bell(msg.place, high),
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
        (Some(MsgKind::Settled), None) => drop(SETTLED.fetch_max(msg.arg, Relaxed)),
        (_, passed) => {
            passed.inspect(|f| fd::close(*f));
        }
    }
}

/// The connection that an offer's number names, if it is still the one that was offered.
fn offered(number: u64) -> Option<(u32, &'static Conn)> {
    let index = number as u32;
    if index as usize >= arena::CONNS {
        return None;
    }
    let c = arena::conn(index);
    let same = c.generation.load(Acquire) == (number >> 32) as u32 && c.state.load(Acquire) == state::OFFERED;
    same.then_some((index, c))
}

/// The last link whose memory did not come with its record. Links are numbered in 32 bits, so this is none.
static UNRECEIVED: AtomicU64 = AtomicU64::new(u64::MAX);

fn given(msg: &Msg, era: u32) {
    let found = link::find(msg.link, msg.side, era);
    match (found, offered(msg.offer)) {
        (Some(link), Some((index, c))) => attach::assign(index, c, link, msg.slot),
        (None, Some((_, c))) => {
            c.state.store(state::NATIVE, Release);
            let no_number = UNRECEIVED.load(Relaxed) == u64::from(msg.link);
            attach::stay(c, if no_number { Reason::FdLimit } else { Reason::Memory });
            let _ = tell_released((msg.link, msg.side, era), msg.slot);
        }
        // Withdrawn, but perhaps unheard. Said by the offer's number: the slot may be another connection's by now.
        (_, None) => {
            let again = Msg { offer: msg.offer, ..Msg::new(MsgKind::Withdraw) };
            let _ = send(SOCKET.load(Relaxed), &again, None);
        }
    }
}

/// The broker compares the cookie with the socket's, which may be another one by the time that it is sent.
fn again(msg: &Msg) {
    if let Some((index, c)) = offered(msg.offer) {
        let offer = Msg { offer: msg.offer, arg: msg.arg, ..Msg::new(MsgKind::Offer) };
        let socket = arena::local(index).fd.load(Relaxed) as i32;
        if send(SOCKET.load(Relaxed), &offer, Some(socket)).is_err() {
            // A later operation offers it.
            let _ = c.state.compare_exchange(state::OFFERED, state::NATIVE, AcqRel, Relaxed);
        }
    }
}

fn refused(msg: &Msg) {
    if let Some((_, c)) = offered(msg.offer) {
        c.state.store(state::NATIVE, Release);
        attach::stay(c, Reason::from_code(msg.arg as u8).unwrap_or(Reason::PeerAbsent));
    }
}

/// For good.
pub fn quit() {
    STAYS.store(false, Relaxed);
    leave();
    NOT_BEFORE.store(u64::MAX, Relaxed);
}

/// A slot of this link has been given back. Of a link that a broker gave who is gone nobody will say that it is done
/// with: it goes with its last slot.
pub fn tidy(link: u32) {
    let former = SOCKET.load(Relaxed) < 0 || link::get(link).id().2 != ERA.load(Relaxed);
    // Reentered: a signal handler inside of `listen`; the link goes when the next broker is joined.
    if former && LOCK.lock(thread::tid()) != Taken::Reentered {
        link::remove_idle(link);
        LOCK.unlock();
    }
}

/// In a forked child: the membership is the parent's.
pub fn forget() {
    link::drop_own(SOCKET.swap(-1, Relaxed));
    WELCOME.store(0, Relaxed);
    NOT_BEFORE.store(0, Relaxed);
    UNTOLD.store(0, Relaxed);
    owed::forget();
    HEARD.store(0, Relaxed);
    LOCK.forget();
}
