//! epoll(7) for sets that hold upgraded connections: event mask for event mask what the kernel would say.

use super::readiness::{self, ERR, HUP, IN, OUT, PRI, RDHUP};
use super::sets::{self, Inner, Reg, Set, reg};
use super::signals::Quiet;
use super::{Deadline, UNKNOWN_BELL_US, as_ptr};
use crate::fdtable::{self, Kind};
use crate::record::{Conn, flag, state};
use crate::{arena, attach, io, link, member, next, place};
use core::sync::atomic::Ordering::*;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, epoll_event};
use sidestep_abi::Reason;
use sidestep_sys::{Errno, Result, arch, call, clock};

const ET: u32 = libc::EPOLLET as u32;
const ONESHOT: u32 = libc::EPOLLONESHOT as u32;
const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
/// What the kernel tells us of a managed connection: every change, once. "Writable" only on demand
/// ([`ask_for_out`]): it nearly always is.
const MANAGED: u32 = IN | RDHUP | PRI | ET;
/// Upper half of the data of our own kernel registrations; the descriptor is the lower half.
const TAG: u64 = 0x51de_57e9 << 32;
const DOORBELL: u64 = TAG | 0xffff_ffff;
/// While rings keep a thread busy, the kernel is asked at least so often.
const KERNEL_US: u64 = 50;
/// ... and every so many calls.
const KERNEL_CALLS: u32 = 8;

/// A managed registration that is not parked.
const WATCHED: u32 = reg::MANAGED | reg::PRESENT;

fn is_tag(data: u64) -> bool {
    data & 0xffff_ffff_0000_0000 == TAG
}

/// epoll_ctl(2) on our behalf.
fn kernel_ctl(epfd: i32, op: i32, fd: i32, events: u32, data: u64) -> Result<()> {
    let mut event = epoll_event { events, u64: data };
    let args = [epfd as usize, op as usize, fd as usize, &raw mut event as usize, 0, 0];
    // SAFETY: one epoll_event, alive.
    unsafe { call(libc::SYS_epoll_ctl, args) }.map(drop)
}

/// epoll_create(2) has returned `fd`.
pub fn created(fd: i32) {
    if fd >= 0
        && let Some(index) = sets::create(fd)
        && !fdtable::set(fd, Kind::Set(index))
    {
        sets::get(index).refs.store(0, Release);
    }
}

/// A descriptor of the set was closed.
pub fn closed(index: u32, fd: i32) {
    let s = sets::get(index);
    if s.fd.load(Relaxed) == fd {
        fdtable::for_each(|other, kind| {
            if kind == Kind::Set(index) {
                s.fd.store(other, Relaxed);
            }
        });
    }
    if s.refs.load(Acquire) == 1 {
        for_each_managed(s, |c| drop_bell(s, c));
        s.destroy();
    }
    s.refs.fetch_sub(1, AcqRel);
}

fn for_each_managed(s: &Set, mut each: impl FnMut(&'static Conn)) {
    fdtable::for_each(|fd, kind| {
        if let Kind::Conn(index) = kind
            && s.with(|inner| inner.reg(fd).is_some_and(|r| r.state & reg::MANAGED != 0)) == Some(true)
        {
            each(arena::conn(index));
        }
    });
}

fn drop_bell(s: &Set, c: &Conn) {
    if let Some(p) = s.place() {
        c.words().side[c.my_side()].bells.fetch_and(!(1 << p), SeqCst);
    }
}

/// Whether some set holds `fd`.
pub fn is_member(fd: i32) -> bool {
    sets::all().any(|(_, s)| s.with(|inner| inner.reg(fd).is_some_and(|r| r.state & reg::PRESENT != 0)) == Some(true))
}

/// Before the last close of a socket: forgets `fd` everywhere. `offered`: its offer is on the way, and the broker's
/// descriptor would keep it in the kernel's sets, with events for a number that may be somebody else's by then.
pub fn forget(fd: i32, offered: bool) {
    for (_, s) in sets::all() {
        s.with(|inner| {
            if offered && inner.reg(fd).is_some_and(|r| r.state & reg::PRESENT != 0) {
                let _ = kernel_ctl(s.fd.load(Relaxed), EPOLL_CTL_DEL, fd, 0, 0);
            }
            inner.clear(fd);
        });
    }
}

/// Gives the registrations of `fd` back to the kernel's own care, as the program made them.
pub fn restore(fd: i32) {
    for (_, s) in sets::all() {
        s.with(|inner| hand_back(s, inner, fd));
    }
}

fn hand_back(s: &Set, inner: &mut Inner, fd: i32) {
    let Some(r) = inner.reg(fd).filter(|r| r.state & reg::MANAGED != 0) else { return };
    r.state &= !reg::MANAGED;
    if r.state & reg::PRESENT == 0 {
        let _ = kernel_ctl(s.fd.load(Relaxed), EPOLL_CTL_DEL, fd, 0, 0);
        return;
    }
    let (events, data) = (if r.state & reg::DISARMED != 0 { 0 } else { r.events }, r.data);
    let _ = kernel_ctl(s.fd.load(Relaxed), EPOLL_CTL_MOD, fd, events, data);
    s.asked.store(0, Relaxed); // the kernel may have something at once
}

/// epoll_ctl(2). `native`: the program's own call.
pub fn ctl(index: u32, op: i32, fd: i32, event: *const epoll_event, native: impl FnOnce() -> i32) -> i32 {
    let s = sets::get(index);
    // SAFETY: the program vouches for the event; DEL may pass none.
    let wanted = unsafe { event.as_ref() }.map(|e| (e.events, e.u64));
    if let Some(result) = change_managed(s, op, fd, wanted) {
        return crate::errno::give(result) as i32;
    }
    if let Kind::Set(inner) = fdtable::get(fd) {
        nest(inner);
    }
    let result = native();
    if result == 0 {
        record(s, op, fd, wanted);
        if let Kind::Conn(conn) = fdtable::get(fd) {
            arena::conn(conn).raise(flag::WAITED);
            if arena::conn(conn).is_attached() && op != EPOLL_CTL_DEL {
                crate::errno::keep(|| manage(conn, arena::conn(conn), fd, true));
            }
        }
    }
    result
}

/// A change of interest in an upgraded connection needs no system call: the kernel's mask never changes, and a
/// connection that is taken out of the set is only *parked*, for programs that put it back at once. None: not
/// managed, or not any longer; the kernel's business.
fn change_managed(s: &Set, op: i32, fd: i32, wanted: Option<(u32, u64)>) -> Option<Result<usize>> {
    let result = s.with(|inner| {
        let r = inner.reg(fd).filter(|r| r.state & reg::MANAGED != 0)?;
        let result = change(r, op, wanted)?;
        if result.is_ok() {
            inner.queue(fd);
        }
        Some(result)
    });
    kick(s);
    result.flatten()
}

fn change(r: &mut Reg, op: i32, wanted: Option<(u32, u64)>) -> Option<Result<usize>> {
    let present = r.state & reg::PRESENT != 0;
    match (op, wanted) {
        (EPOLL_CTL_ADD, _) if present => return Some(Err(Errno(libc::EEXIST))),
        (EPOLL_CTL_MOD | EPOLL_CTL_DEL, _) if !present => return Some(Err(Errno(libc::ENOENT))),
        (EPOLL_CTL_DEL, _) => {
            r.state &= !(reg::PRESENT | reg::DISARMED);
            return Some(Ok(0));
        }
        // epoll_ctl(2): EPOLLEXCLUSIVE is not for modifications.
        (EPOLL_CTL_MOD, Some((events, _))) if (events | r.events) & EXCLUSIVE != 0 => {
            return Some(Err(Errno(libc::EINVAL)));
        }
        (EPOLL_CTL_ADD | EPOLL_CTL_MOD, Some((events, data))) => {
            if is_tag(data) || present && arena::conn(r.conn).has(flag::KERNEL_ONLY) {
                return None; // the kernel watches it again
            }
            r.events = events;
            r.data = data;
            r.state = r.state & !reg::DISARMED | reg::PRESENT;
        }
        _ => return None,
    }
    Some(Ok(0))
}

/// Something was queued from outside of a wait: whoever sleeps there must look.
fn kick(s: &Set) {
    if let Some(p) = s.place().filter(|p| place::has_sleepers(*p)) {
        sidestep_sys::fd::ring(place::eventfd(p));
    }
}

fn record(s: &Set, op: i32, fd: i32, wanted: Option<(u32, u64)>) {
    s.with(|inner| {
        let was_managed = inner.reg(fd).is_some_and(|r| r.state & reg::MANAGED != 0);
        if was_managed && let Kind::Conn(conn) = fdtable::get(fd) {
            drop_bell(s, arena::conn(conn));
        }
        match (op, wanted) {
            (EPOLL_CTL_DEL, _) => inner.clear(fd),
            (_, Some((events, data))) => {
                if is_tag(data) {
                    s.clash.store(true, Relaxed);
                }
                if let Some(r) = inner.reg(fd) {
                    r.events = events;
                    r.data = data;
                    r.state = r.state & reg::QUEUED | reg::PRESENT;
                }
            }
            _ => {}
        }
    });
}

/// Takes over the registrations of an attached connection in every set that holds it. `armed`: the program has
/// just asked for events, so that even a one-shot registration is known to be armed.
pub fn manage(index: u32, c: &'static Conn, fd: i32, armed: bool) {
    for (_, s) in sets::all() {
        let managed = s.with(|inner| manage_in(s, inner, index, fd, armed)).unwrap_or(Ok(false));
        match managed {
            Ok(true) => {
                if let Some(p) = s.place() {
                    c.words().side[c.my_side()].bells.fetch_or(1 << p, SeqCst);
                }
                // From the arming of the bell on everything is heard; what came before is looked at once.
                s.with(|inner| inner.queue(fd));
                kick(s);
            }
            Ok(false) => {}
            Err(reason) => attach::stay(c, reason),
        }
    }
}

fn manage_in(s: &Set, inner: &mut Inner, index: u32, fd: i32, armed: bool) -> core::result::Result<bool, Reason> {
    let Some(r) = inner.reg(fd).filter(|r| r.state & (reg::PRESENT | reg::MANAGED) == reg::PRESENT) else {
        return Ok(false);
    };
    if s.clash.load(Relaxed) {
        return Err(Reason::Foreign);
    }
    if r.events & ONESHOT != 0 && !armed {
        return Ok(false); // whether it has fired is unknown until the program arms it again
    }
    let exclusive = r.events & EXCLUSIVE != 0;
    r.conn = index;
    ensure_place(s).ok_or(Reason::Places)?;
    let epfd = s.fd.load(Relaxed);
    let tag = TAG | u64::from(fd as u32);
    let taken = if exclusive {
        kernel_ctl(epfd, EPOLL_CTL_DEL, fd, 0, 0).and_then(|()| kernel_ctl(epfd, EPOLL_CTL_ADD, fd, MANAGED, tag))
    } else {
        kernel_ctl(epfd, EPOLL_CTL_MOD, fd, MANAGED, tag)
    };
    if taken.is_err() {
        inner.clear(fd); // the kernel has forgotten it, so do we
        return Ok(false);
    }
    if let Some(r) = inner.reg(fd) {
        r.state |= reg::MANAGED;
    }
    Ok(true)
}

/// A set's doorbell is one more member of it, edge-triggered so that it need never be read.
fn ensure_place(s: &Set) -> Option<u32> {
    if let Some(p) = s.place() {
        return Some(p);
    }
    let p = place::acquire()?;
    // Known before the kernel is: whoever is woken by the doorbell must recognise it.
    s.set_place(p);
    if kernel_ctl(s.fd.load(Relaxed), EPOLL_CTL_ADD, place::eventfd(p), IN | ET, DOORBELL).is_err() {
        s.set_no_place();
        place::release(p);
        return None;
    }
    // Threads that sleep there already do not listen to rings yet.
    sidestep_sys::fd::ring(place::eventfd(p));
    Some(p)
}

/// Whether some set still watches the connection in the kernel's way.
pub fn has_unmanaged(c: &Conn) -> bool {
    sets::all().any(|(_, s)| {
        s.with(|inner| {
            let mut found = false;
            for_each_fd(c, |fd| {
                found |= inner.reg(fd).is_some_and(|r| r.state & (reg::PRESENT | reg::MANAGED) == reg::PRESENT);
            });
            found
        }) == Some(true)
    })
}

fn for_each_fd(c: &Conn, mut each: impl FnMut(i32)) {
    let index = link::get(c.link.load(Relaxed)).conn_at(c.slot.load(Relaxed) as usize);
    if let Some(index) = index {
        each(arena::local(index).fd.load(Relaxed) as i32);
    }
}

/// A set that others watch must become readable by itself when a ring does.
pub fn nest(index: u32) {
    let s = sets::get(index);
    if !s.nested.swap(true, AcqRel) {
        NESTED.fetch_add(1, AcqRel);
    }
    arm_nested(s);
}

/// Sets that have ever been watched from outside.
static NESTED: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(0);

/// Before a wait that may look at such sets: they are readable if, and only if, they have something.
fn refresh_nested() {
    if NESTED.load(Relaxed) != 0 {
        sets::all().filter(|(_, s)| s.nested.load(Relaxed)).for_each(|(_, s)| arm_nested(s));
    }
}

/// Queues the connections that have rung for this place.
fn queue_news(s: &Set, p: u32) {
    place::take_news(p, |index| {
        io::send::serve(index);
        let fd = arena::local(index).fd.load(Relaxed) as i32;
        s.with(|inner| inner.queue(fd));
    });
}

/// Leaves the doorbell armed although nobody sleeps, and rings it if there is something already.
fn arm_nested(s: &Set) {
    let Some(p) = s.place() else { return };
    for l in link::all() {
        sidestep_ring::bell::doze(l.my_bell(p));
    }
    sidestep_ring::bell::settle();
    queue_news(s, p);
    if s.with(any_ready) == Some(false) {
        sidestep_sys::fd::hush(place::eventfd(p));
    } else {
        sidestep_sys::fd::ring(place::eventfd(p));
    }
}

/// A set that a forked child shares with its parent: what is in it goes back to the kernel's care, for both.
#[cold]
fn disinherit(s: &Set) {
    fdtable::for_each(|fd, kind| {
        let Kind::Conn(index) = kind else { return };
        if s.with(|inner| inner.reg(fd).is_some_and(|r| r.state & reg::MANAGED != 0)) == Some(true) {
            crate::life::surrender(arena::conn(index), fd, Reason::Shared);
            restore(fd);
        }
    });
    s.set_no_place();
}

/// Whether something in the queue would be reported. Leaves the queue as it is, but for what is not ready.
fn any_ready(inner: &mut Inner) -> bool {
    for _ in 0..inner.queued {
        let Some(fd) = inner.pop() else { return false };
        let Some(r) = inner.reg(fd).copied() else { continue };
        if r.state & WATCHED != WATCHED || r.state & reg::DISARMED != 0 {
            continue;
        }
        let interest = r.events & !(ET | ONESHOT | EXCLUSIVE);
        if readiness::events(arena::conn(r.conn), fd, interest) != 0 {
            inner.queue(fd);
            return true;
        }
    }
    false
}

/// epoll_wait(2) in all its forms. `ns`: None waits for ever. `native` makes the program's own call.
pub fn wait(
    index: u32,
    out: &mut [epoll_event],
    ns: Option<u64>,
    mask: *const libc::sigset_t,
    native: impl FnOnce() -> i32,
) -> i32 {
    let s = sets::get(index);
    member::check();
    if s.generation.load(Relaxed) != crate::fork::generation() && s.place().is_some() {
        crate::errno::keep(|| disinherit(s));
    }
    refresh_nested();
    let deadline = Deadline::after_ns(ns.filter(|n| *n > 0));
    let p = match s.place() {
        Some(p) => p,
        None => {
            let _ = deadline.has_passed(); // starts the clock
            s.natives.fetch_add(1, AcqRel);
            let n = native();
            if s.natives.fetch_sub(1, AcqRel) > 1
                && let Some(p) = s.place()
            {
                sidestep_sys::fd::ring(place::eventfd(p)); // the doorbell wakes them one by one
            }
            if n <= 0 {
                return n;
            }
            // A place may have come while we slept, or a parent's doorbell may still be in the set: events of ours
            // are not the program's, and the wait goes on.
            match (sort(s, out, n as usize), s.place()) {
                (0, Some(p)) => p,
                (0, None) => return crate::errno::give(wait_kernel(s, out, &deadline, mask)) as i32,
                (kept, _) => return kept as i32,
            }
        }
    };
    let n = crate::errno::give(wait_both(s, p, out, ns, &deadline, mask)) as i32;
    if s.nested.load(Relaxed) {
        crate::errno::keep(|| arm_nested(s));
    }
    n
}

fn wait_both(
    s: &Set,
    p: u32,
    out: &mut [epoll_event],
    ns: Option<u64>,
    deadline: &Deadline,
    mask: *const libc::sigset_t,
) -> Result<usize> {
    let (mut quiet, mut spun) = (None, false);
    loop {
        // One harvest per call: what it reports stays queued if it is level-triggered.
        let calls = s.calls.fetch_add(1, Relaxed);
        let due = calls % KERNEL_CALLS == 0
            || arch::ticks().wrapping_sub(s.asked.load(Relaxed)) > clock::ticks_of_us(KERNEL_US);
        // With room for one event only, kernel and rings take turns.
        let turn = out.len() > 1 || !s.kernel_had_turn.swap(false, Relaxed);
        let kept = if turn && (due || ns == Some(0) || s.nested.load(Relaxed)) { ask_kernel(s, out)? } else { 0 };
        s.kernel_had_turn.store(kept > 0, Relaxed);
        let n = kept + harvest(s, p, out, kept);
        if n > 0 || ns == Some(0) {
            return Ok(n);
        }
        let quiet = quiet.get_or_insert_with(Quiet::begin);
        spun = !spun && s.spin.wait(|| place::has_news(p));
        if spun {
            continue; // if the news is nothing after all, sleep
        }
        let n = sleep(s, p, out, deadline, quiet.mask(mask))?;
        if n > 0 || deadline.has_passed() {
            return Ok(n);
        }
    }
}

/// Waits in the kernel alone, for the program's own events.
fn wait_kernel(s: &Set, out: &mut [epoll_event], deadline: &Deadline, mask: *const libc::sigset_t) -> Result<usize> {
    loop {
        let n = kernel_wait(s, out, &deadline.left(None), mask)?;
        let kept = sort(s, out, n);
        if kept > 0 || n == 0 {
            return Ok(kept);
        }
    }
}

/// What the kernel has right now of the program's own events, without waiting.
fn ask_kernel(s: &Set, out: &mut [epoll_event]) -> Result<usize> {
    s.asked.store(arch::ticks(), Relaxed);
    let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // Events of ours take the room of the program's own: ask again.
    for _ in 0..4 {
        let n = kernel_wait(s, out, &Some(zero), core::ptr::null())?;
        let kept = sort(s, out, n);
        if kept > 0 || n < out.len() {
            return Ok(kept);
        }
    }
    Ok(0)
}

fn sleep(s: &Set, p: u32, out: &mut [epoll_event], deadline: &Deadline, mask: *const libc::sigset_t) -> Result<usize> {
    place::doze(p);
    if place::has_news(p) {
        place::rise(p);
        return Ok(0);
    }
    let cap = if !link::all().all(|l| l.knows(p)) {
        Some(UNKNOWN_BELL_US)
    } else if FULL.load(Relaxed) != 0 {
        Some(io::send::STALL_US + 1000)
    } else {
        None
    };
    let began = arch::ticks();
    let result = kernel_wait(s, out, &deadline.left(cap), mask);
    place::rise(p);
    s.asked.store(arch::ticks(), Relaxed);
    s.spin.slept(s.asked.load(Relaxed) - began);
    if result == Ok(0) && FULL.swap(0, Relaxed) != 0 {
        queue_full(s);
    }
    let kept = sort(s, out, result?);
    Ok(kept + harvest(s, p, out, kept))
}

/// Set when a wait found some writer without space: its reader may have stalled, so sleep no longer than that.
static FULL: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(0);

/// The kernel carries and takes no more: it is to tell when it does.
#[cold]
fn ask_for_out(s: &Set, fd: i32) {
    let _ = kernel_ctl(s.fd.load(Relaxed), EPOLL_CTL_MOD, fd, MANAGED | OUT, TAG | u64::from(fd as u32));
}

/// Some writer has something to take back that did not fit; whoever waits next looks after it.
pub fn expect_space() {
    FULL.store(1, Relaxed);
}

/// Looks again at every writer that waits for space.
fn queue_full(s: &Set) {
    fdtable::for_each(|fd, kind| {
        if let Kind::Conn(index) = kind
            && arena::conn(index).has(flag::TX_BLOCKED)
        {
            s.with(|inner| inner.queue(fd));
        }
    });
}

fn kernel_wait(
    s: &Set,
    out: &mut [epoll_event],
    left: &Option<libc::timespec>,
    mask: *const libc::sigset_t,
) -> Result<usize> {
    let epfd = s.fd.load(Relaxed);
    // SAFETY: `out` is writable for its length; the timespec is alive; the mask is the program's or null.
    let n = unsafe { next::epoll_pwait2(epfd, out.as_mut_ptr(), out.len() as i32, as_ptr(left), mask) };
    crate::errno::take(n as isize)
}

/// Keeps the program's own events, in place, and queues the connections that ours speak of.
fn sort(s: &Set, out: &mut [epoll_event], n: usize) -> usize {
    let mut kept = 0;
    for i in 0..n {
        let event = out[i];
        if !is_tag(event.u64) || s.clash.load(Relaxed) {
            out[kept] = event;
            kept += 1;
        } else if event.u64 != DOORBELL {
            let fd = event.u64 as u32 as i32;
            if let Kind::Conn(index) = fdtable::get(fd) {
                // A plain "writable" is no news of the stream's end; all else deserves a question.
                if event.events & !(OUT | libc::EPOLLWRNORM as u32) != 0 {
                    arena::conn(index).raise(flag::HINT);
                }
                io::send::serve(index);
            }
            s.with(|inner| inner.queue(fd));
        }
    }
    kept
}

/// Reports what is ready among managed connections, from `out[from]` on. Returns how many.
fn harvest(s: &Set, p: u32, out: &mut [epoll_event], from: usize) -> usize {
    queue_news(s, p);
    s.with(|inner| {
        let mut n = from;
        for _ in 0..inner.queued {
            if n == out.len() {
                break;
            }
            let Some(fd) = inner.pop() else { break };
            // Attached by another thread just after the kernel had reported it in its own way: once is enough.
            let data = inner.reg(fd).map_or(0, |r| r.data);
            if out[..from].iter().any(|told| told.u64 == data) {
                inner.queue(fd);
                continue;
            }
            if let Some(event) = look(s, inner, fd) {
                out[n] = event;
                n += 1;
            }
        }
        n - from
    })
    .unwrap_or(0)
}

/// One look at a queued registration; a level-triggered one that is ready stays in the queue.
fn look(s: &Set, inner: &mut Inner, fd: i32) -> Option<epoll_event> {
    let r = *inner.reg(fd)?;
    if r.state & WATCHED != WATCHED || r.state & reg::DISARMED != 0 {
        return None;
    }
    let c = arena::conn(r.conn);
    if c.state.load(Acquire) != state::ATTACHED {
        hand_back(s, inner, fd); // another process of the family has brought it back to the kernel
        return None;
    }
    let found = readiness::events(c, fd, r.events & !(ET | ONESHOT | EXCLUSIVE));
    if c.has(flag::TX_TAKE_BACK) || r.events & OUT != 0 && found & OUT == 0 {
        if c.has(flag::TX_RING) { FULL.store(1, Relaxed) } else { ask_for_out(s, fd) }
    }
    if found & (r.events | ERR | HUP) == 0 {
        return None;
    }
    if r.events & ONESHOT != 0 {
        inner.reg(fd)?.state |= reg::DISARMED;
    } else if r.events & ET == 0 {
        inner.queue(fd);
    }
    Some(epoll_event { events: found, u64: r.data })
}
