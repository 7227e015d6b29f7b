//! poll(2): the kernel is asked about everything except the bytes of attached connections.

use super::signals::{Quiet, let_signals_in};
use super::{Deadline, NOW, Patience, UNKNOWN_BELL_US, as_ptr, kernel_poll, readiness};
use crate::fdtable::{self, Kind};
use crate::record::{Conn, flag};
use crate::{
    arena, debts, drain, errno, generation, link, member, next, stream::due, stream::leave, stream::native, stream::rx,
    stream::stretch, stream::unrung, wait, waiter,
};
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::*;
use libc::{POLLIN, POLLOUT, POLLPRI, POLLRDHUP, pollfd, sigset_t};
use sidestep_abi::Reason;
use sidestep_ring::side;
use sidestep_sys::{Errno, Result, arch, mem};

/// Most entries on the stack. A call needs two for each descriptor. A longer list takes a mapping for the duration of the call.
const ON_STACK: usize = 257;
/// Events that only the ring of an attached connection decides.
const BYTES: i16 = POLLIN | POLLOUT | libc::POLLRDNORM | libc::POLLWRNORM;
/// Those of them that are about space.
const SPACE: i16 = POLLOUT | libc::POLLWRNORM;
/// Events that poll(2) always reports.
const ALWAYS: i16 = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;

/// What the list holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    Nothing,
    /// Native connections, which must not be attached while we wait for them.
    Native,
    Attached,
}

/// poll(2) in all its forms. `ns`: None waits for ever. `native`: the program's own call.
pub fn poll(fds: &mut [pollfd], ns: Option<u64>, mask: *const sigset_t, native: impl FnOnce() -> i32) -> i32 {
    debts::settle();
    poll_within(fds, ns, mask, native)
}

/// As [`poll`], as part of another call, which has begun already.
pub fn poll_within(fds: &mut [pollfd], ns: Option<u64>, mask: *const sigset_t, native: impl FnOnce() -> i32) -> i32 {
    member::keep_up(arch::ticks());
    match survey(fds) {
        Holds::Nothing => kernel_poll::poll(fds, ns, mask, native),
        Holds::Native => {
            let polled = with_list(fds.len(), |room| {
                let gates = Gates::enter(fds, room);
                // Only inside the gates is it certain that none has been attached meanwhile.
                let n = (survey(fds) == Holds::Native).then(|| kernel_poll::poll(fds, ns, mask, native));
                gates.leave();
                n
            });
            match polled {
                Ok(Some(n)) => n,
                Ok(None) => errno::give(poll_both(fds, ns, mask)) as i32,
                Err(e) => errno::give(Err(e)) as i32,
            }
        }
        Holds::Attached => errno::give(poll_both(fds, ns, mask)) as i32,
    }
}

/// Holds the gates of the native connections in a list, so that nobody attaches them while we sleep. Each entry has the record
/// and the number of its gate.
struct Gates<'a> {
    list: &'a mut [pollfd],
    generation: u32,
}

impl<'a> Gates<'a> {
    /// `room`: as many entries as the list has.
    fn enter(fds: &[pollfd], room: &'a mut [pollfd]) -> Gates<'a> {
        let generation = generation::get();
        for (entry, p) in room.iter_mut().zip(fds) {
            *entry = NOBODY;
            let Kind::Conn(index) = fdtable::get(p.fd) else { continue };
            let c = arena::conn(index);
            if c.is_attached() {
                continue;
            }
            // SYNC gate: we enter, then look at the state; the attacher sets the state, then looks at the gate.
            let number = native::enter_gate(index, c);
            if c.is_attached() {
                native::leave_gate(index, c, number, generation);
            } else {
                *entry = pollfd { fd: index as i32, events: (number >> 16) as i16, revents: number as i16 };
            }
        }
        Gates { list: room, generation }
    }

    fn leave(self) -> &'a mut [pollfd] {
        for entry in self.list.iter().filter(|entry| entry.fd >= 0) {
            let number = u32::from(entry.events as u16) << 16 | u32::from(entry.revents as u16);
            native::leave_gate(entry.fd as u32, arena::conn(entry.fd as u32), number, self.generation);
        }
        self.list
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
                if c.is_attached() {
                    if arena::is_inherited(c) {
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

/// A forked child waits on a connection that its parent attached: nobody can ring the child, so the kernel must carry.
#[cold]
fn leave_to_kernel(c: &'static Conn, fd: i32) {
    drain::tx(c, fd, Reason::Shared);
    if c.with_rx(|rx| rx.unread(c.rx_half())).unwrap_or(0) == 0 {
        leave::rx_to_kernel(c, Reason::Shared);
    }
}

fn poll_both(fds: &mut [pollfd], ns: Option<u64>, mask: *const sigset_t) -> Result<usize> {
    with_list(2 * fds.len() + 1, |list| {
        let (gates, list) = list.split_at_mut(fds.len());
        Poll { fds, list, gates, patience: Patience::default() }.run(ns, mask)
    })
    .and_then(|result| result)
}

/// Runs `work` with a list of `len` empty entries.
pub fn with_list<T>(len: usize, work: impl FnOnce(&mut [pollfd]) -> T) -> Result<T> {
    if len <= ON_STACK {
        let mut room = [const { MaybeUninit::uninit() }; ON_STACK];
        let list = &mut room[..len];
        list.iter_mut().for_each(|entry| _ = entry.write(NOBODY));
        // SAFETY: each entry has just been written.
        return Ok(work(unsafe { list.assume_init_mut() }));
    }
    let bytes = len * size_of::<pollfd>();
    let memory = mem::anonymous(bytes, false).map_err(|_| Errno(libc::ENOMEM))?;
    // SAFETY: a fresh zeroed mapping of `len` pollfds, unmapped below, after its last use.
    let list = unsafe { core::slice::from_raw_parts_mut(memory.cast::<pollfd>(), len) };
    list.fill(NOBODY);
    let result = work(list);
    // SAFETY: after its last use.
    unsafe { mem::unmap(memory, bytes) };
    Ok(result)
}

/// An entry that poll(2) skips.
const NOBODY: pollfd = pollfd { fd: -1, events: 0, revents: 0 };

/// One call: the program's list; the list for the kernel, with a doorbell at its end; room for [`Gates`].
struct Poll<'a> {
    fds: &'a mut [pollfd],
    list: &'a mut [pollfd],
    gates: &'a mut [pollfd],
    patience: Patience,
}

impl Poll<'_> {
    fn run(&mut self, ns: Option<u64>, mask: *const sigset_t) -> Result<usize> {
        let deadline = Deadline::after_ns(ns.filter(|n| *n > 0));
        let (mut quiet, mut spun) = (Quiet::begin(mask), false);
        if ns == Some(0) {
            self.each_attached(|c| {
                if rx::is_due(c) {
                    c.raise(flag::HINT); // a wait without a sleep would not notice that a peer has died
                }
            });
        }
        loop {
            if self.poll_rings() > 0 || ns == Some(0) {
                let n = self.finish()?;
                if n == 0 && ns == Some(0) {
                    return let_signals_in(mask).map(|()| 0);
                }
                // A connection that was ready may have returned to the kernel since.
                if n > 0 {
                    return Ok(n);
                }
            }
            let began = arch::ticks();
            member::keep_up(began);
            spun = !spun && SPIN.wait(|| self.glance() || quiet.is_disturbed());
            if spun {
                continue; // if this news turns out to be nothing, the next round sleeps
            }
            quiet.hold_back(false)?;
            let gates = Gates::enter(self.fds, core::mem::take(&mut self.gates));
            let heard = self.sleep(&deadline, quiet.mask(mask), began);
            self.gates = gates.leave();
            let heard = heard?;
            let passed = deadline.has_passed();
            if heard || passed {
                self.poll_rings();
                let n = self.finish()?;
                // The news may be nothing that the program wants: without an event, only the deadline ends the wait.
                if n > 0 || passed {
                    return Ok(n);
                }
            }
            errno::keep(wait::epoll::poll_nested); // the list may hold epoll sets
        }
    }

    /// Stores the readiness of attached connections in their `revents`. Returns how many are ready.
    fn poll_rings(&mut self) -> usize {
        let mut ready = 0;
        for p in self.fds.iter_mut() {
            let Some(c) = attached(p.fd) else { continue };
            if p.events & (POLLIN | POLLOUT) == 0 {
                c.raise(flag::HINT); // only the kernel knows the events that are asked for
            }
            p.revents = readiness::events(c, p.fd, u32::from(p.events as u16)) as u16 as i16;
            if p.revents & POLLIN != 0 {
                unrung::bytes(c);
            }
            ready += usize::from(p.revents != 0);
        }
        ready
    }

    /// As [`Poll::look`], without locks and system calls, for spinning.
    fn glance(&self) -> bool {
        self.fds.iter().any(|p| p.events & POLLIN != 0 && attached(p.fd).is_some_and(readiness::ring_has_bytes))
    }

    /// Adds the present events of all other descriptors, and returns how many entries have events.
    fn finish(&mut self) -> Result<usize> {
        self.fill(-1);
        if self.fds.iter().any(|p| p.fd >= 0 && attached(p.fd).is_none()) {
            self.kernel(&NOW, core::ptr::null())?;
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

    /// Sleeps on everything, in a wait that began at `began`. True: something besides a doorbell may have happened.
    fn sleep(&mut self, deadline: &Deadline, mask: *const sigset_t, began: u64) -> Result<bool> {
        let generation = generation::get();
        let Some(p) = waiter::acquire_for_thread() else { return self.sleep_unheard(deadline, mask) };
        self.each_own(|c| side::add_doorbell(&c.words().side[c.my_side()], p));
        waiter::arm(p);
        let result = if self.poll_rings() > 0 {
            Ok(true)
        } else {
            self.fill(waiter::doorbell(p));
            let n = self.kernel(&deadline.left(self.cap(p)), mask);
            SPIN.waited(arch::ticks() - began);
            n.map(|n| self.heard(n, p))
        };
        if generation::get() != generation {
            return result; // in a child that a handler has made: waiter and doorbells are its parent's
        }
        waiter::disarm(p, false);
        self.each_own(|c| side::remove_doorbell(&c.words().side[c.my_side()], p));
        waiter::poll_news(p, stretch::serve);
        waiter::release(p);
        result
    }

    /// As [`Poll::sleep`] without a doorbell, since none is free: what the program waits for comes by kernel from now on.
    #[cold]
    fn sleep_unheard(&mut self, deadline: &Deadline, mask: *const sigset_t) -> Result<bool> {
        for p in self.fds.iter() {
            if let Some(c) = attached(p.fd) {
                leave::what_is_awaited(c, p.fd, (p.events & BYTES & !SPACE != 0, p.events & SPACE != 0));
            }
        }
        if self.poll_rings() > 0 {
            return Ok(true);
        }
        self.fill(-1);
        let nap = self.patience.next_us();
        let n = self.kernel(&deadline.left(Some(nap)), mask)?;
        self.take_hints();
        Ok(n > 0)
    }

    fn each_attached(&self, each: impl FnMut(&Conn)) {
        self.fds.iter().filter_map(|p| attached(p.fd)).for_each(each);
    }

    /// The doorbells of an inherited connection are the parent's, whose waiters have the same numbers.
    fn each_own(&self, mut each: impl FnMut(&Conn)) {
        self.each_attached(|c| {
            if !arena::is_inherited(c) {
                each(c);
            }
        });
    }

    /// Longest sleep if nothing happens. None: no limit.
    fn cap(&self, p: u32) -> Option<u64> {
        let mut cap = wait::epoll::native_cap();
        self.each_attached(|c| {
            if !link::get(c.link.load(Relaxed)).knows(p) {
                cap = Some(UNKNOWN_BELL_US);
            } else if cap.is_none() && c.has(flag::TX_BLOCKED) {
                cap = Some(due::STALLED_US);
            }
        });
        cap
    }

    /// Fills the list for the kernel: for an attached connection only with events that the kernel decides.
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

    fn kernel(&mut self, left: &Option<libc::timespec>, mask: *const sigset_t) -> Result<usize> {
        // SAFETY: the list, the timespec and the program's mask (or null) are alive during the call.
        let n = unsafe { next::ppoll(self.list.as_mut_ptr(), self.list.len() as u64, as_ptr(left), mask) };
        errno::check(n as isize)
    }

    /// After a sleep: takes the kernel's hints, and hushes the doorbell.
    fn heard(&self, n: usize, p: u32) -> bool {
        let bell = self.list.last().is_some_and(|k| k.revents != 0);
        if bell {
            sidestep_sys::fd::hush(waiter::doorbell(p));
        }
        self.take_hints();
        n > usize::from(bell)
    }

    /// Marks the connections of which the kernel has reported something.
    fn take_hints(&self) {
        for (k, p) in self.list.iter().zip(self.fds.iter()) {
            if readiness::is_hint(k.revents as u16 as u32)
                && let Some(c) = attached(p.fd)
            {
                c.raise(flag::HINT);
            }
        }
    }
}

static SPIN: crate::spin::Spin = crate::spin::Spin::new();

fn attached(fd: i32) -> Option<&'static Conn> {
    match fdtable::get(fd) {
        Kind::Conn(index) => Some(arena::conn(index)).filter(|c| c.is_attached()),
        _ => None,
    }
}

/// While a ring carries, the kernel knows only ends and errors, and "readable" means one of these.
fn kernel_interest(c: &Conn, events: i16) -> i16 {
    let mut ask = events & (POLLPRI | POLLRDHUP) | readiness::for_unsent(c);
    if events & (POLLIN | libc::POLLRDNORM) != 0 {
        ask |= POLLIN;
    }
    if events & BYTES & !POLLIN != 0 && readiness::is_kernels(c) {
        ask |= events & (POLLOUT | libc::POLLWRNORM);
    }
    ask
}
