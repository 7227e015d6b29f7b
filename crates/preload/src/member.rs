//! Our membership with the broker: joins it, asks for pairs, hears what was paired. Never waits for it.

use crate::broker::{self, HEARD, LOCK, SOCKET};
use crate::fdtable::{self, Kind};
use crate::record::Conn;
use crate::{arena, attach, counters, link, log, pending_releases, settings, thread, waiter};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use sidestep_abi::Reason;
use sidestep_abi::msg::{Kind as MsgKind, Msg};
use sidestep_conn::Event;
use sidestep_ring::page;
use sidestep_sys::lock::Taken;
use sidestep_sys::{Errno, arch, clock, control, fd, limit};

/// 1: Welcome has come, the page is shared.
static WELCOME: AtomicU32 = AtomicU32::new(0);
/// Ticks before which nothing is tried again: after a failure, or while no Welcome has come.
static NOT_BEFORE: AtomicU64 = AtomicU64::new(0);
/// The process serves: it is a member even while it has nothing to offer.
static STAYS: AtomicBool = AtomicBool::new(false);

const RETRY_US: u64 = 1_000_000;
const LISTEN_US: u64 = 20;

/// Hears what the broker has to say, if anything. One load when there is nothing.
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

#[cold]
fn catch_up() {
    if listen() && broker::claim_settles_soon() {
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
    joined().ok_or(Reason::NoBroker)?;
    c.offered_in.store(broker::link_era(), Relaxed);
    let cookie = sidestep_sys::tcp::cookie(socket_fd).map_err(|_| Reason::Foreign)?;
    let arg2 = u64::from(passive);
    let msg = Msg { offer: broker::offer_number(index, c), arg: cookie, arg2, ..Msg::new(MsgKind::Offer) };
    broker::send(&msg, Some(socket_fd)).map_err(|_| Reason::NoBroker)
}

/// Not a broker for us: never asked again.
fn rejected(msg: &Msg) {
    let same = msg.arg == u64::from(sidestep_abi::VERSION);
    counters::count(if same { Reason::UserPair } else { Reason::Version });
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
            broker::begin_era();
            let (ring_size, descriptors) = (settings::get().ring_size, limit::descriptor_limit());
            // The program keeps half of its descriptors, whatever peers do.
            let hello = Msg { arg: u64::from(ring_size), arg2: descriptors / 2, ..Msg::new(MsgKind::Hello) };
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

/// The broker is gone. What has been paired goes on; a new one is looked for when next needed. Under the lock.
fn leave() {
    let broker = SOCKET.swap(-1, AcqRel);
    WELCOME.store(0, Relaxed);
    if broker >= 0 {
        log::say(&[b"broker gone, control socket "], broker as u64);
        fdtable::drop_own(broker);
        pending_releases::cancel();
        // Connections that ended after the broker and before this could not know that nobody would ask for their links.
        link::remove_idle_ones(|_| true);
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
    let socket = SOCKET.load(Relaxed);
    let msg = Msg { arg: number, ..Msg::new(MsgKind::Settle) };
    let until = clock::monotonic_ns() + SETTLE_NS;
    if broker::send(&msg, None).is_err() {
        return;
    }
    while SETTLED.load(Relaxed) < number && SOCKET.load(Relaxed) == socket && clock::monotonic_ns() < until {
        if !listen() {
            return; // from within `listen`
        }
        if SETTLED.load(Relaxed) < number {
            clock::nap_us(SETTLE_NAP_US);
        }
    }
}

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
    let pending = page::announced(counters::page());
    if broker::owes() {
        pending_releases::tell();
        tell_untold();
    }
    let all = hear_all();
    HEARD.store(pending, SeqCst);
    if !all || broker::owes() {
        broker::ask_again();
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

/// The connection that an offer's number names, with its generation, if it is still the one that was offered.
fn offered(number: u64) -> Option<(u32, u32, &'static Conn)> {
    let index = number as u32;
    if index as usize >= arena::CONNS {
        return None;
    }
    let c = arena::conn(index);
    let (generation, phase) = c.phase.now();
    (generation == (number >> 32) as u32 && phase.is_offered()).then_some((index, generation, c))
}

/// The last link whose memory did not come with its record. Links are numbered in 32 bits, so this is none.
static UNRECEIVED: AtomicU64 = AtomicU64::new(u64::MAX);

fn given(msg: &Msg, era: u32) {
    let found = link::find(msg.link, msg.side, era);
    match (found, offered(msg.offer)) {
        (Some(link), Some((index, generation, c))) => attach::assign(index, (c, generation), link, msg.slot),
        (None, Some((_, generation, c))) => {
            if c.phase.go_in(generation, Event::Lose).is_none() {
                return; // whoever has closed it meanwhile has withdrawn the offer
            }
            let no_number = UNRECEIVED.load(Relaxed) == u64::from(msg.link);
            c.keep_on_kernel(if no_number { Reason::FdLimit } else { Reason::Memory });
            let _ = broker::release((msg.link, msg.side, era), msg.slot);
        }
        // Withdrawn, but perhaps unheard. Said by the offer's number: the slot may be another connection's by now.
        (_, None) => {
            let again = Msg { offer: msg.offer, ..Msg::new(MsgKind::Withdraw) };
            let _ = broker::send(&again, None);
        }
    }
}

/// The broker compares the cookie with the socket's, which may be another one by the time that it is sent.
fn again(msg: &Msg) {
    if let Some((index, generation, c)) = offered(msg.offer) {
        let offer = Msg { offer: msg.offer, arg: msg.arg, ..Msg::new(MsgKind::Offer) };
        let socket = arena::local(index).fd.load(Relaxed) as i32;
        if broker::send(&offer, Some(socket)).is_err() {
            // A later operation offers it.
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

/// For good.
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
