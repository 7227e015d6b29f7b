//! epoll_wait(2) in all its forms.

use super::entries;
use super::nested::{arm_nested, is_unheard, native_cap, poll_nested, refresh_nested};
use super::news::{self, queue_writers};
use super::report::{self, Reported};
use super::shared;
use crate::debts::{self, Debt};
use crate::fdtable::{self, Kind};
use crate::rest;
use crate::wait::sets::{self, Inner, Set};
use crate::wait::signals::Quiet;
use crate::wait::{Deadline, NOW, UNKNOWN_BELL_US, is_now};
use crate::{errno, generation, link, member, stream::due, stream::stretch, thread, user, waiter};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering::*};
use libc::{epoll_event, sigset_t};
use sidestep_abi::sync::fence_after_rmw;
use sidestep_ready::{Asked, Pace, Wait};
use sidestep_sys::{Errno, Result, arch, clock};

/// Longest time between two questions to the kernel while rings keep a thread busy.
const KERNEL_US: u64 = 50;
/// Most calls between two such questions.
const KERNEL_CALLS: u32 = 8;
/// If waits for a set follow each other within this time (microseconds) for long, the set is hurried: the kernel is not asked
/// in each of them. The saving is worth more than the order between rings and kernel.
const HURRY_US: u64 = 25;

/// The program's call.
struct Call<'a> {
    s: &'static Set,
    /// [`Set::life`] when the call began.
    life: u32,
    out: &'a mut [epoll_event],
    /// Timeout in nanoseconds. None: no limit.
    ns: Option<u64>,
    deadline: Deadline,
    mask: *const sigset_t,
    /// Whether the set is hurried.
    hurried: Option<bool>,
    /// The last look found that the list of ready registrations has nothing to disarm.
    is_unarmed: bool,
}

/// Result of the first half of a round.
enum Round {
    Over(Reported),
    /// The kernel is to be asked.
    Asks(Wait, Reported),
}

type Room = [MaybeUninit<epoll_event>];

/// The debt of a wait in a set without managed registrations ([`Set::natives`]).
static NATIVE: debts::Kind = debts::Kind(|set, _| sets::get(set).end_native());

/// epoll_wait(2) in all its forms. `ns`: timeout, None: no limit. `native` makes the program's own call.
pub fn wait(
    index: u32,
    out: &mut [epoll_event],
    ns: Option<u64>,
    mask: *const sigset_t,
    native: impl FnOnce() -> i32,
) -> i32 {
    let s = sets::get(index);
    let life = s.life.load(Acquire);
    debts::settle();
    member::keep_up(arch::ticks());
    shared::uses(index);
    refresh_nested();
    // SYNC given back: while another thread still gives registrations back, the kernel's events may have our tags.
    let is_given_back = s.is_given_back.load(Acquire);
    // The set has no doorbell, and nobody can change that meanwhile.
    let n = if is_given_back || !s.had_waiter.load(Relaxed) && thread::is_alone() && native_cap().is_none() {
        if ns == Some(0) { native() } else { rest::during(native) }
    } else {
        let deadline = Deadline::after_ns(ns.filter(|n| *n > 0));
        let mut call = Call { s, life, out, ns, deadline, mask, hurried: None, is_unarmed: false };
        let most = call.out.len();
        errno::give(entries::with_room(s, most, |room| call.wait(index, room))) as i32
    };
    if n > 0 {
        errno::keep(refresh_nested);
    }
    n
}

impl Call<'_> {
    fn wait(&mut self, index: u32, room: &mut Room) -> Result<usize> {
        let mut quiet = None;
        loop {
            self.is_open(index)?;
            shared::obey(self.s);
            let n = match self.s.waiter() {
                None => self.wait_natively(index, room, &mut quiet).transpose(),
                Some(p) => {
                    let n = self.wait_both(index, p, room, &mut quiet);
                    // Several threads may wait in one set: the news may have been for another thread, and there may be more.
                    waiter::pass_on(p, || has_listed(self.s));
                    wake_natives(self.s, p);
                    Some(n)
                }
            };
            // A native wait, too, may have heard the doorbell that the set got meanwhile.
            if self.s.nested.load(Relaxed) {
                errno::keep(|| arm_nested(self.s));
            }
            if let Some(n) = n {
                return n;
            }
        }
    }

    /// EBADF: another thread has closed the set meanwhile. Its descriptor may be another file's by now, and its record another
    /// set's.
    fn is_open(&self, index: u32) -> Result<()> {
        match fdtable::get(self.s.fd.load(Relaxed)) {
            Kind::Set(known) if known == index && self.s.life.load(Acquire) == self.life => Ok(()),
            _ => Err(Errno(libc::EBADF)),
        }
    }

    /// Waits in a set that has no doorbell. None: it has one now.
    fn wait_natively(&mut self, index: u32, room: &mut Room, quiet: &mut Option<Quiet>) -> Result<Option<usize>> {
        let (most, cap) = (room.len(), native_cap());
        if cap.is_some() && self.ns != Some(0) {
            // No handler runs between two sleeps: it would interrupt none of them, and the program expects EINTR.
            quiet.get_or_insert_with(|| Quiet::begin(self.mask)).hold_back(false)?;
        }
        let mask = quiet.as_ref().map_or(self.mask, |quiet| quiet.mask(self.mask));
        let left = if self.ns == Some(0) { NOW } else { self.deadline.left(cap) };
        let has_passed = is_now(&left);
        self.s.natives.fetch_add(1, SeqCst);
        debts::owe(Debt::new(&NATIVE, index));
        // SYNC natives: we are counted, then look for a doorbell; the other side sets the doorbell, then looks at the count.
        fence_after_rmw();
        // If the set has a doorbell by now, this thread must not sleep without listening to it.
        let found = match self.s.waiter() {
            None => entries::ask(self.s, room, &left, mask).map(Some),
            Some(_) => Ok(None),
        };
        debts::paid(Debt::new(&NATIVE, index));
        self.s.end_native();
        let Some(found) = found? else { return Ok(None) };
        self.is_open(index)?;
        if cap.is_some() && found.is_empty() {
            errno::keep(poll_nested); // the next look finds news that nobody rang for
        }
        // The set may have got a doorbell during the sleep, or may still hold a parent's.
        let natives = news::hear_kernel(self.s, found);
        if natives < found.len() {
            shared::took_foreign(self.s, found);
        }
        let n = match self.pass_on(found, natives) {
            Some(n) => n,
            None => self.report(found, natives, most)?,
        };
        if let Some(p) = self.s.waiter() {
            wake_natives(self.s, p);
        }
        Ok((n > 0 || has_passed && found.is_empty() || self.deadline.has_passed()).then_some(n))
    }

    /// Passes the kernel's events to the program unchanged, if the set has never had a doorbell: then there is no order to
    /// keep. This is the whole wait of a program whose messages are too rare for rings, so it touches little memory.
    fn pass_on(&mut self, found: &[epoll_event], natives: usize) -> Option<usize> {
        if natives < found.len() || found.len() > self.out.len() || self.s.had_waiter.load(SeqCst) {
            return None;
        }
        // SAFETY: the program's own place for events, which has room for as many.
        unsafe { user::write_all(self.out.as_mut_ptr(), found) }.ok().map(|()| found.len())
    }

    /// Reports the kernel's events, and listed registrations.
    fn report(&mut self, found: &[epoll_event], natives: usize, most: usize) -> Result<usize> {
        let asked = Asked { entries: found.len(), natives, more: found.len() == most };
        done(self.s.with(|inner| {
            let wait = inner.ready.asked_first();
            self.merge(inner, &wait, (found, Some(asked)), 0)
        }))
    }

    /// Reports the kernel's events, if it was asked, and listed registrations. The first one is the `n`-th event of the wait.
    fn merge(&mut self, inner: &mut Inner, wait: &Wait, answer: (&[epoll_event], Option<Asked>), n: usize) -> Reported {
        let merged = report::merge(self.s, inner, wait, answer, self.out, n);
        self.is_unarmed = inner.ready.is_unarmed();
        merged
    }

    fn wait_both(&mut self, index: u32, p: u32, room: &mut Room, quiet: &mut Option<Quiet>) -> Result<usize> {
        let (s, mask) = (self.s, self.mask);
        let (quiet, mut spun) = (quiet.get_or_insert_with(|| Quiet::begin(mask)), false);
        loop {
            self.is_open(index)?;
            shared::obey(s);
            if due::has_come() {
                queue_writers();
            }
            let n = self.round(p, room)?;
            if n > 0 || self.ns == Some(0) {
                self.listen(p);
                return Ok(n);
            }
            let began = arch::ticks();
            member::keep_up(began);
            if !spun && s.spin.may_pay() {
                waiter::hush(p);
            }
            spun = !spun && s.spin.wait(|| waiter::has_news(p) || quiet.is_disturbed());
            if spun {
                continue; // if this news turns out to be nothing, the next round sleeps
            }
            quiet.hold_back(false)?;
            let n = self.sleep(index, p, room, quiet.mask(mask), began)?;
            if n > 0 || self.deadline.has_passed() {
                self.listen(p);
                return Ok(n);
            }
        }
    }

    /// One look at everything, without waiting.
    fn round(&mut self, p: u32, room: &mut Room) -> Result<usize> {
        let s = self.s;
        let now = arch::ticks();
        let begun = news::heard(s, p, |inner| {
            let judge = || inner.pace.is_hurried(now, clock::ticks_of_us(HURRY_US * u64::from(Pace::WINDOW)));
            self.hurried.get_or_insert_with(judge);
            let (wait, begun) = report::begin(s, inner, self.out);
            if begun.n == self.out.len() || begun.failed {
                return Round::Over(begun);
            }
            if self.is_due(now, !inner.ready.list.is_empty()) {
                return Round::Asks(wait, begun);
            }
            Round::Over(self.merge(inner, &wait, (&[], None), begun.n))
        });
        match begun {
            Some(Round::Asks(wait, begun)) => self.ask(p, room, &wait, begun.n),
            Some(Round::Over(reported)) => done(Some(reported)),
            None => done(None),
        }
    }

    /// The second half of a round: asks the kernel. `n`: number of events reported in the first half.
    fn ask(&mut self, p: u32, room: &mut Room, wait: &Wait, n: usize) -> Result<usize> {
        let s = self.s;
        let most = (self.out.len() - n).min(room.len());
        let room = &mut room[..most];
        let (found, asked) = match ask_now(s, room) {
            // SAFETY: the kernel has just answered so many.
            Ok(asked) => (unsafe { entries::written(room, asked.entries) }, Some(asked)),
            Err(e) if n == 0 => return Err(e),
            Err(_) => (&[][..], None),
        };
        done(news::heard(s, p, |inner| self.merge(inner, wait, (found, asked), n)))
    }

    /// Whether this round asks the kernel. A round that reports nothing is followed by a sleep, which asks it anyway.
    /// `has_listed`: some registration is listed.
    fn is_due(&self, now: u64, has_listed: bool) -> bool {
        let s = self.s;
        if self.hurried != Some(true) {
            return self.ns == Some(0) || has_listed || s.spin.may_pay();
        }
        self.ns == Some(0)
            || s.nested.load(Relaxed)
            || s.calls.fetch_add(1, Relaxed).is_multiple_of(KERNEL_CALLS)
            || now.wrapping_sub(s.asked.load(Relaxed)) > clock::ticks_of_us(KERNEL_US)
    }

    /// Whether, after this wait, the first news rings although nobody sleeps, so that the kernel's list keeps the order of the
    /// news.
    fn listens(&self) -> bool {
        let s = self.s;
        let has_natives = s.has_level.load(Relaxed) || s.has_edge.load(Relaxed);
        has_natives && self.hurried != Some(true) && !s.nested.load(Relaxed)
    }

    fn listen(&self, p: u32) {
        let listens = self.listens();
        if listens {
            waiter::listen(p);
        } else if self.is_unarmed {
            return;
        }
        self.s.with(|inner| inner.ready.arm(if listens { arch::ticks() } else { 0 }));
    }

    /// News, whatever it is worth, keeps this thread from sleeping. So the kernel is asked now and then.
    fn ask_if_late(&mut self, room: &mut Room) -> Result<usize> {
        let late = arch::ticks().wrapping_sub(self.s.asked.load(Relaxed)) > clock::ticks_of_us(KERNEL_US);
        if !late {
            return Ok(0);
        }
        let asked = ask_now(self.s, room)?;
        // SAFETY: the kernel has just answered so many.
        let found = unsafe { entries::written(room, asked.entries) };
        self.report(found, asked.natives, room.len())
    }

    /// Sleeps. The wait began at `began`.
    fn sleep(&mut self, index: u32, p: u32, room: &mut Room, mask: *const sigset_t, began: u64) -> Result<usize> {
        let (s, most, generation) = (self.s, room.len(), generation::get());
        waiter::arm(p);
        if waiter::has_news(p) || has_listed(s) {
            waiter::disarm(p, self.listens());
            return self.ask_if_late(room);
        }
        let cap = if !link::all().all(|l| l.knows(p)) || is_unheard() {
            Some(UNKNOWN_BELL_US)
        } else if due::expects_space() {
            Some(due::STALLED_US)
        } else {
            None
        };
        let result = entries::ask(s, room, &self.deadline.left(cap), mask).map(<[_]>::len);
        if generation::get() != generation {
            return Err(Errno(libc::EINTR)); // in a child that a handler has made: the waiter is its parent's
        }
        if cap == Some(UNKNOWN_BELL_US) {
            attend_unheard();
            errno::keep(refresh_nested);
        }
        waiter::disarm(p, self.listens());
        self.is_open(index)?;
        s.asked.store(arch::ticks(), Relaxed);
        s.spin.waited(s.asked.load(Relaxed) - began);
        // SAFETY: the kernel has just answered so many.
        let found = unsafe { entries::written(room, result?) };
        if found.is_empty() {
            queue_writers();
        }
        let natives = news::hear_kernel(s, found);
        news::list_rung(s, p);
        self.report(found, natives, most)
    }
}

/// The result of a look. EFAULT: no event could be written.
fn done(look: Option<Reported>) -> Result<usize> {
    match look {
        Some(Reported { n: 0, failed: true }) => Err(Errno(libc::EFAULT)),
        Some(reported) => Ok(reported.n),
        None => Ok(0), // a handler has interrupted this set's own lock: nothing is ready
    }
}

/// The ring that announced the set's doorbell wakes one thread, perhaps one that was awake anyway. So each thread that leaves
/// the wait rings again, for threads that still sleep without listening to rings.
fn wake_natives(s: &Set, p: u32) {
    if s.natives.load(SeqCst) > 0 {
        waiter::ring(p);
    }
}

/// Asks the kernel for the program's own events, without waiting.
fn ask_now(s: &Set, room: &mut Room) -> Result<Asked> {
    let mut asked = Asked::default();
    // Our own events take the room of the program's: then ask again.
    for _ in 0..4 {
        s.asked.store(arch::ticks(), Relaxed);
        let found = entries::ask(s, room, &NOW, core::ptr::null())?;
        let (n, natives) = (found.len(), news::hear_kernel(s, found));
        let more = n == room.len();
        asked = Asked { entries: n, natives, more };
        if natives > 0 || !more {
            break;
        }
    }
    Ok(asked)
}

/// Whether some registration is listed.
fn has_listed(s: &Set) -> bool {
    s.with(|inner| !inner.ready.list.is_empty()) == Some(true)
}

/// Some peer cannot ring here yet, and a connection may have no other sign of news. So this serves all connections, at most
/// once in the time of the shortened sleep.
#[cold]
fn attend_unheard() {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let (now, next) = (arch::ticks(), NEXT.load(Relaxed));
    let later = now + clock::ticks_of_us(UNKNOWN_BELL_US);
    if now >= next && NEXT.compare_exchange(next, later, Relaxed, Relaxed).is_ok() {
        fdtable::for_each(|_, kind| {
            if let Kind::Conn(index) = kind {
                stretch::serve(index);
            }
        });
    }
}
