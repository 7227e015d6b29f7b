//! Waiters: where threads of this process wait. Each has a doorbell and a small number (`place`), which peers know.
//!
//! An epoll set is a waiter for its life, a blocking call for its duration.
//!
//! The doorbell is an epoll instance. For each process that may ring it, the broker adds an eventfd and gives it to nobody
//! else. For rings of our own, one more descriptor, which is always readable, is in all doorbells of this process. One is
//! enough: EPOLL_CTL_MOD in one doorbell makes an edge in that doorbell only.

use crate::debts::{self, Debt, Kind};
use crate::{arena, broker, fdtable, link, thread};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::*};
use sidestep_abi::link::{Doorbell, PLACES};
use sidestep_ring::{Sleepers, doorbell, side};
use sidestep_sys::{arch, clock, fd, process};

struct Waiter {
    doorbell: AtomicI32,
    /// The thread that uses it; 0: an epoll set uses it, or nobody does.
    user: AtomicU32,
    /// Threads that sleep here.
    sleepers: Sleepers,
    /// A handler has jumped out of a sleep here.
    was_left: AtomicBool,
}

static WAITERS: [Waiter; PLACES] = [const {
    Waiter {
        doorbell: AtomicI32::new(-1),
        user: AtomicU32::new(0),
        sleepers: Sleepers::new(),
        was_left: AtomicBool::new(false),
    }
}; PLACES];

/// Debts of a blocking call: it uses a waiter, and sleeps there.
static LENT: Kind = Kind(|place, _| leave(place));
static ASLEEP: Kind = Kind(|place, _| leave_sleep(place));

/// Bit p: waiter p is in use.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// The descriptor that is always readable, in all our doorbells; -1: none yet.
static ALWAYS: AtomicI32 = AtomicI32::new(-1);

/// The epoll instance that a thread which waits here sleeps on. -1: none.
pub fn doorbell(place: u32) -> i32 {
    WAITERS[place as usize].doorbell.load(Acquire)
}

/// Wakes a thread that sleeps here.
pub fn ring(place: u32) {
    fd::ring_own(doorbell(place), ALWAYS.load(Acquire));
}

/// A waiter for a thread that is about to block on connections of `link`; if possible one whose doorbell the peer has.
pub fn borrow(link: &link::Link) -> Option<u32> {
    claim(|p| doorbell(p) >= 0 && link.knows(p)).or_else(acquire).inspect(|p| lend(*p))
}

/// A waiter for a thread that is about to block on connections of several links.
pub fn acquire_for_thread() -> Option<u32> {
    acquire().inspect(|p| lend(*p))
}

fn lend(place: u32) {
    WAITERS[place as usize].user.store(thread::tid(), Relaxed);
    debts::owe(Debt::new(&LENT, place));
}

/// Gives back a waiter whose thread has left its blocking call by a jump.
#[cold]
fn leave(place: u32) {
    fdtable::for_each(|_, kind| {
        if let fdtable::Kind::Conn(index) = kind
            && arena::conn(index).is_attached()
            && !arena::is_inherited(arena::conn(index))
        {
            let c = arena::conn(index);
            side::remove_doorbell(&c.words().side[c.my_side()], place);
        }
    });
    release(place);
}

/// Ends a sleep that its thread has left by a jump. Producers go on ringing: the waiter may be a set that other threads watch in
/// another set, and nobody arms it before the next wait there. The sleep may have heard a ring that was for them.
#[cold]
fn leave_sleep(place: u32) {
    WAITERS[place as usize].was_left.store(true, Relaxed);
    disarm(place, true);
    listen(place);
    if has_news(place) {
        ring(place);
    }
}

/// Whether a handler has jumped out of a sleep here since the last question: the sleep may have taken the doorbell's event.
pub fn was_left(place: u32) -> bool {
    let was_left = &WAITERS[place as usize].was_left;
    was_left.load(Relaxed) && was_left.swap(false, Relaxed)
}

/// A waiter for an epoll set.
pub fn acquire() -> Option<u32> {
    let place = claim(|p| doorbell(p) >= 0).or_else(|| claim(|_| true)).or_else(reap)?;
    WAITERS[place as usize].user.store(0, Relaxed);
    WAITERS[place as usize].was_left.store(false, Relaxed);
    if doorbell(place) < 0 && !create(place) {
        release(place);
        return None;
    }
    Some(place)
}

/// Those of these waiters, a bit each, that epoll sets use.
pub fn of_sets(places: u64) -> u64 {
    let is_sets = |place: &usize| places & 1 << *place != 0 && WAITERS[*place].user.load(Relaxed) == 0;
    (0..PLACES).filter(is_sets).fold(0, |sets, place| sets | 1 << place)
}

pub fn release(place: u32) {
    debts::paid(Debt::new(&LENT, place));
    TAKEN.fetch_and(!(1 << place), AcqRel);
}

fn claim(fits: impl Fn(u32) -> bool) -> Option<u32> {
    let mut free = !TAKEN.load(Acquire);
    while free != 0 {
        let place = free.trailing_zeros();
        free &= free - 1;
        if fits(place) && TAKEN.fetch_or(1 << place, AcqRel) & 1 << place == 0 {
            return Some(place);
        }
    }
    None
}

/// Least time between two checks of the owners of all waiters.
const REAP_US: u64 = 100_000;

/// A waiter whose thread was cancelled or has exited while it waited.
fn reap() -> Option<u32> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let (now, next) = (arch::ticks(), NEXT.load(Relaxed));
    let later = now + clock::ticks_of_us(REAP_US);
    if now < next || NEXT.compare_exchange(next, later, Relaxed, Relaxed).is_err() {
        return None;
    }
    let reaped = (0..PLACES as u32).find(|p| {
        let user = WAITERS[*p as usize].user.load(Acquire);
        user != 0
            && !process::exists(user)
            && WAITERS[*p as usize].user.compare_exchange(user, 0, AcqRel, Relaxed).is_ok()
    })?;
    // The thread may have ended in its sleep; nobody else can sleep at its waiter.
    WAITERS[reaped as usize].sleepers.reset();
    Some(reaped)
}

fn create(place: u32) -> bool {
    let Some(always) = always() else { return false };
    let Ok(new) = fd::doorbell() else { return false };
    let edge = (libc::EPOLLIN | libc::EPOLLET) as u32;
    if fd::epoll_ctl(new, libc::EPOLL_CTL_ADD, always, edge, 0).is_err() {
        fd::close(new);
        return false;
    }
    fd::hush(new);
    fdtable::set(new, fdtable::Kind::Own);
    WAITERS[place as usize].doorbell.store(new, Release);
    broker::announce(place, new);
    broker::settle_soon();
    true
}

/// The descriptor that is always readable, for edges at will. Made when it is first needed.
pub fn always() -> Option<i32> {
    let known = ALWAYS.load(Acquire);
    if known >= 0 {
        return Some(known);
    }
    let new = fd::always_readable().ok()?;
    match ALWAYS.compare_exchange(-1, new, AcqRel, Acquire) {
        Ok(_) => {
            fdtable::set(new, fdtable::Kind::Own);
            Some(new)
        }
        Err(faster) => {
            fd::close(new);
            Some(faster)
        }
    }
}

/// Announces all doorbells to a new broker.
pub fn announce_all() {
    for place in 0..PLACES as u32 {
        if doorbell(place) >= 0 {
            broker::announce(place, doorbell(place));
        }
    }
}

/// Arms the doorbells: from now on producers ring. The caller must look at everything afterwards.
pub fn arm(place: u32) {
    debts::owe(Debt::new(&ASLEEP, place));
    WAITERS[place as usize].sleepers.arm(|| bells(place));
}

/// Disarms the doorbells. `listening`: producers go on ringing, as after [`listen`].
pub fn disarm(place: u32, listening: bool) {
    debts::paid(Debt::new(&ASLEEP, place));
    if WAITERS[place as usize].sleepers.disarm(listening, || bells(place)) {
        ring(place);
    }
}

/// Arms the doorbells although nobody sleeps: the next producer rings, and no further one.
pub fn listen(place: u32) {
    doorbell::arm(bells(place));
}

/// Disarms the doorbells, unless a thread sleeps here.
pub fn hush(place: u32) {
    if WAITERS[place as usize].sleepers.disarm_if_idle(|| bells(place)) {
        ring(place);
    }
}

/// A thread that has looked here leaves. Threads that still sleep here must get the next news. `more`: whether some news is
/// left for them now.
pub fn pass_on(place: u32, more: impl FnOnce() -> bool) {
    let sleepers = &WAITERS[place as usize].sleepers;
    if sleepers.is_any() && (sleepers.stay_armed(|| bells(place)) || more()) {
        ring(place);
    }
}

/// The doorbells of this waiter, one in each link.
fn bells(place: u32) -> impl Iterator<Item = &'static Doorbell> {
    link::all().map(move |l| l.my_doorbell(place))
}

/// Whether a thread sleeps here.
pub fn has_sleepers(place: u32) -> bool {
    WAITERS[place as usize].sleepers.is_any()
}

/// Wakes the threads that sleep at these waiters, a bit each.
pub fn ring_all(mut places: u64) {
    while places != 0 {
        ring(places.trailing_zeros());
        places &= places - 1;
    }
}

/// Whether some connection may have news for this waiter.
#[inline]
pub fn has_news(place: u32) -> bool {
    bells(place).any(doorbell::is_ready)
}

/// Takes the news: calls `found` with the index of each such connection.
#[inline]
pub fn poll_news(place: u32, mut found: impl FnMut(u32)) {
    for l in link::all() {
        doorbell::poll(l.my_doorbell(place), |slot| {
            if let Some(conn) = l.conn_at(slot) {
                found(conn);
            }
        });
    }
}

/// In a forked child: the waiters are the parent's.
pub fn reset_in_child() {
    for p in &WAITERS {
        fdtable::drop_own(p.doorbell.swap(-1, Relaxed));
        p.user.store(0, Relaxed);
        p.sleepers.reset();
        p.was_left.store(false, Relaxed);
    }
    fdtable::drop_own(ALWAYS.swap(-1, Relaxed));
    TAKEN.store(0, Relaxed);
}
