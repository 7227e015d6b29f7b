//! poll(2): the kernel is asked about everything but the bytes of upgraded connections.

use super::signals::{Quiet, Sleep};
use super::{Deadline, Patience, UNKNOWN_BELL_US, as_ptr, readiness, remind};
use crate::fdtable::{self, Kind};
use crate::record::{Conn, flag, state};
use crate::{arena, errno, io, link, member, next, place, wait};
use core::sync::atomic::Ordering::*;
use libc::{POLLIN, POLLOUT, POLLPRI, POLLRDHUP, pollfd};
use sidestep_abi::Reason;
use sidestep_sys::{Errno, Result, mem};

/// Descriptors that fit on the stack; a longer list takes a mapping for the time of the call.
const ON_STACK: usize = 128;
/// What only an upgraded connection's ring can tell.
const BYTES: i16 = POLLIN | POLLOUT | libc::POLLRDNORM | libc::POLLWRNORM;
/// What poll(2) tells unasked.
const ALWAYS: i16 = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;

/// What the list holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    Nothing,
    /// Connections that are on the kernel, which must not be upgraded while we wait there.
    Native,
    Attached,
}

/// poll(2) in all its forms. `ns`: None waits for ever. `native`: the program's own call.
pub fn poll(fds: &mut [pollfd], ns: Option<u64>, mask: *const libc::sigset_t, native: impl FnOnce() -> i32) -> i32 {
    member::check();
    match survey(fds) {
        Holds::Nothing => native(),
        Holds::Native => {
            for_each(fds, |c, _| {
                c.gate.fetch_add(1, SeqCst);
            });
            // Only now is it certain that none has been attached meanwhile.
            let still = survey(fds) == Holds::Native;
            let n = if still { native() } else { 0 };
            for_each(fds, |c, _| {
                c.gate.fetch_sub(1, SeqCst);
            });
            if still { n } else { errno::give(poll_both(fds, ns, mask)) as i32 }
        }
        Holds::Attached => errno::give(poll_both(fds, ns, mask)) as i32,
    }
}

fn for_each(fds: &[pollfd], mut each: impl FnMut(&'static Conn, usize)) {
    for (i, p) in fds.iter().enumerate() {
        if let Kind::Conn(index) = fdtable::get(p.fd) {
            each(arena::conn(index), i);
        }
    }
}

fn survey(fds: &[pollfd]) -> Holds {
    let mut holds = Holds::Nothing;
    for p in fds {
        match fdtable::get(p.fd) {
            Kind::Conn(index) => {
                let c = arena::conn(index);
                if !c.has(flag::WAITED) {
                    c.raise(flag::WAITED);
                }
                if c.state.load(SeqCst) == state::ATTACHED {
                    if io::is_inherited(c) {
                        leave_to_kernel(c, p.fd);
                    }
                    holds = Holds::Attached;
                    continue;
                }
                if holds == Holds::Attached {
                    continue;
                }
                holds = Holds::Native;
            }
            Kind::Set(index) => wait::epoll::nest(index),
            _ => {}
        }
    }
    holds
}

/// A forked child waits on a connection of its parent's: nobody can ring it, so the kernel must carry.
#[cold]
fn leave_to_kernel(c: &'static Conn, fd: i32) {
    io::send::tx_to_kernel(c, fd, Some(Reason::Shared));
    if c.with_rx(|rx| rx.unread(c.rx_half())).unwrap_or(0) == 0 {
        crate::life::rx_to_kernel(c, Reason::Shared);
    }
}

fn poll_both(fds: &mut [pollfd], ns: Option<u64>, mask: *const libc::sigset_t) -> Result<usize> {
    with_list(fds.len() + 1, |list| Poll { fds, list, patience: Patience::default() }.run(ns, mask))
        .and_then(|result| result)
}

/// Runs `work` with a list of `len` empty entries.
pub fn with_list<T>(len: usize, work: impl FnOnce(&mut [pollfd]) -> T) -> Result<T> {
    if len <= ON_STACK {
        let mut list = [NOBODY; ON_STACK];
        return Ok(work(&mut list[..len]));
    }
    let bytes = len * size_of::<pollfd>();
    let memory = mem::anonymous(bytes, false).map_err(|_| Errno(libc::ENOMEM))?;
    // SAFETY: a fresh zeroed mapping of `len` pollfds, unmapped below, after its last use.
    let list = unsafe { core::slice::from_raw_parts_mut(memory.cast::<pollfd>(), len) };
    list.fill(NOBODY);
    let result = work(list);
    mem::unmap(memory, bytes);
    Ok(result)
}

/// An entry that poll(2) passes over.
const NOBODY: pollfd = pollfd { fd: -1, events: 0, revents: 0 };

/// One call: the program's list, and the list for the kernel, with a doorbell at its end.
struct Poll<'a> {
    fds: &'a mut [pollfd],
    list: &'a mut [pollfd],
    patience: Patience,
}

impl Poll<'_> {
    fn run(&mut self, ns: Option<u64>, mask: *const libc::sigset_t) -> Result<usize> {
        let deadline = Deadline::after_ns(ns.filter(|n| *n > 0));
        let (mut quiet, mut spun) = (None, false);
        loop {
            remind::remind(); // a list of which something is always ready never sleeps
            if self.look() > 0 || ns == Some(0) {
                let n = self.finish()?;
                // A connection that was ready may have gone back to the kernel since.
                if n > 0 || ns == Some(0) {
                    return Ok(n);
                }
            }
            let quiet = quiet.get_or_insert_with(Quiet::begin);
            spun = !spun && SPIN.wait(|| self.glance());
            if spun {
                continue; // if there is nothing after all, sleep
            }
            let heard = self.sleep(&deadline, quiet.mask(mask))?;
            let passed = deadline.has_passed();
            if heard || passed {
                self.look();
                let n = self.finish()?;
                // What was heard may be nothing to the program: only the deadline ends a wait with nothing.
                if n > 0 || passed {
                    return Ok(n);
                }
            }
        }
    }

    /// Readiness of the attached connections, into their `revents`. Returns how many have some.
    fn look(&mut self) -> usize {
        let mut ready = 0;
        for p in self.fds.iter_mut() {
            let Some(c) = attached(p.fd) else { continue };
            p.revents = readiness::events(c, p.fd, u32::from(p.events as u16)) as u16 as i16;
            ready += usize::from(p.revents != 0);
        }
        ready
    }

    /// The same without locks and system calls, for spinning.
    fn glance(&self) -> bool {
        self.fds.iter().any(|p| p.events & POLLIN != 0 && attached(p.fd).is_some_and(readiness::ring_has_bytes))
    }

    /// Adds what the kernel knows of the others, now, and counts all.
    fn finish(&mut self) -> Result<usize> {
        self.fill(-1);
        if self.fds.iter().any(|p| p.fd >= 0 && attached(p.fd).is_none()) {
            let zero = Some(libc::timespec { tv_sec: 0, tv_nsec: 0 });
            self.kernel(&zero, core::ptr::null())?;
        }
        Ok(self.merge())
    }

    fn merge(&mut self) -> usize {
        let mut n = 0;
        for (p, k) in self.fds.iter_mut().zip(self.list.iter()) {
            if attached(p.fd).is_none() {
                p.revents = k.revents & (p.events | ALWAYS);
            }
            n += usize::from(p.revents != 0);
        }
        n
    }

    /// Sleeps on everything. True: something besides a doorbell may have happened.
    fn sleep(&mut self, deadline: &Deadline, mask: *const libc::sigset_t) -> Result<bool> {
        let Some(p) = place::acquire_for_thread() else {
            self.fill(-1);
            let cap = remind::cap(Some(self.patience.next_us()));
            let said = self.kernel(&deadline.left(cap), mask);
            remind::remind();
            return said.map(|n| n > 0);
        };
        self.each_attached(|c| {
            c.words().side[c.my_side()].bells.fetch_or(1 << p, SeqCst);
        });
        place::doze(p);
        let result = if self.look() > 0 {
            Ok(true)
        } else {
            self.fill(place::eventfd(p));
            let began = sidestep_sys::arch::ticks();
            let n = self.kernel(&deadline.left(remind::cap_if(self.cap(p), || self.awaits_bytes())), mask);
            remind::remind();
            SPIN.slept(sidestep_sys::arch::ticks() - began);
            n.map(|n| self.heard(n, p))
        };
        place::rise(p);
        self.each_attached(|c| {
            c.words().side[c.my_side()].bells.fetch_and(!(1 << p), SeqCst);
        });
        place::take_news(p, io::send::serve);
        place::release(p);
        result
    }

    fn each_attached(&self, each: impl FnMut(&Conn)) {
        self.fds.iter().filter_map(|p| attached(p.fd)).for_each(each);
    }

    fn awaits_bytes(&self) -> bool {
        self.fds.iter().filter_map(|p| attached(p.fd)).any(remind::awaits)
    }

    /// How long to sleep at most although nothing happens.
    fn cap(&self, p: u32) -> Option<u64> {
        let mut cap = None;
        self.each_attached(|c| {
            if !link::get(c.link.load(Relaxed)).knows(p) {
                cap = Some(UNKNOWN_BELL_US);
            } else if cap.is_none() && c.has(flag::TX_BLOCKED) {
                cap = Some(io::send::STALLED_US);
            }
        });
        cap
    }

    /// The list for the kernel: of an attached connection only what the kernel decides.
    fn fill(&mut self, doorbell: i32) {
        for (k, p) in self.list.iter_mut().zip(self.fds.iter()) {
            *k = pollfd { fd: p.fd, events: p.events, revents: 0 };
            if let Some(c) = attached(p.fd) {
                k.events = kernel_interest(c, p.events);
            }
        }
        if let Some(last) = self.list.last_mut() {
            *last = pollfd { fd: doorbell, events: POLLIN, revents: 0 };
        }
    }

    fn kernel(&mut self, left: &Option<libc::timespec>, mask: *const libc::sigset_t) -> Result<usize> {
        let sleep = Sleep::begins();
        // SAFETY: the list, the timespec and the program's mask (or null) are alive during the call.
        let n = unsafe { next::ppoll(self.list.as_mut_ptr(), self.list.len() as u64, as_ptr(left), mask) };
        sleep.ended(errno::take(n as isize))
    }

    /// After a sleep: marks connections of which the kernel had something to say, hushes the doorbell.
    fn heard(&self, n: usize, p: u32) -> bool {
        let bell = self.list.last().is_some_and(|k| k.revents != 0);
        if bell {
            sidestep_sys::fd::hush(place::eventfd(p));
        }
        for (k, p) in self.list.iter().zip(self.fds.iter()) {
            if readiness::is_hint(k.revents as u16 as u32)
                && let Some(c) = attached(p.fd)
            {
                c.raise(flag::HINT);
            }
        }
        n > usize::from(bell)
    }
}

static SPIN: super::spin::Spin = super::spin::Spin::new();

fn attached(fd: i32) -> Option<&'static Conn> {
    match fdtable::get(fd) {
        Kind::Conn(index) => Some(arena::conn(index)).filter(|c| c.is_attached()),
        _ => None,
    }
}

/// While a ring carries, the kernel can only tell ends and errors: readable then means just that.
fn kernel_interest(c: &Conn, events: i16) -> i16 {
    let mut ask = events & (POLLPRI | POLLRDHUP) | readiness::for_take_back(c);
    if events & (POLLIN | libc::POLLRDNORM) != 0 {
        ask |= POLLIN;
    }
    if events & BYTES & !POLLIN != 0 && !c.has(flag::TX_RING) {
        ask |= events & (POLLOUT | libc::POLLWRNORM);
    }
    ask
}
