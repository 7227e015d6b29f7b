//! epoll_wait(2) in all its forms.

use super::harvest::{expects_space, harvest, queue_writers, sort, space_is_due};
use super::nested::{arm_nested, refresh_nested};
use super::takeover;
use crate::fdtable::{self, Kind};
use crate::wait::sets::{self, Set};
use crate::wait::signals::{Quiet, Sleep};
use crate::wait::{Deadline, UNKNOWN_BELL_US, as_ptr, remind};
use crate::{errno, io, link, member, next, place, thread};
use core::sync::atomic::{AtomicU64, Ordering::*};
use libc::epoll_event;
use sidestep_abi::sync::fence_after_rmw;
use sidestep_sys::{Result, arch, clock};

/// While rings keep a thread busy, the kernel is asked at least so often.
const KERNEL_US: u64 = 50;
/// ... and every so many calls.
const KERNEL_CALLS: u32 = 8;

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
        errno::keep(|| takeover::disinherit(s));
    }
    refresh_nested();
    let n = wait_in(s, out, ns, mask, native);
    if n > 0 {
        errno::keep(refresh_nested);
    }
    n
}

fn wait_in(
    s: &Set,
    out: &mut [epoll_event],
    ns: Option<u64>,
    mask: *const libc::sigset_t,
    native: impl FnOnce() -> i32,
) -> i32 {
    if !s.had_place.load(Relaxed) && thread::is_alone() {
        return native(); // holds nothing of ours, and nobody can change that meanwhile
    }
    let deadline = Deadline::after_ns(ns.filter(|n| *n > 0));
    let p = match s.place() {
        Some(p) => p,
        None => {
            let n = if ns == Some(0) { native() } else { wait_natively(s, &deadline, native) };
            if n < 0 || !s.had_place.load(Relaxed) || n == 0 && s.place().is_none() {
                return n;
            }
            // A place may have come while we slept, or a parent's doorbell may still be in the set: events of ours
            // are not the program's, and the wait goes on.
            match (sort(s, out, n as usize), s.place()) {
                (0, Some(p)) => p,
                (0, None) => return errno::give(wait_kernel(s, out, &deadline, mask)) as i32,
                (kept, p) => {
                    p.inspect(|p| wake_natives(s, *p));
                    return kept as i32;
                }
            }
        }
    };
    let n = errno::give(wait_both(s, p, out, ns, &deadline, mask)) as i32;
    // Several threads may wait in one set: what we saw may have been meant for another, and there may be more.
    place::pass_on(p, || has_queued(s));
    wake_natives(s, p);
    if s.nested.load(Relaxed) {
        errno::keep(|| arm_nested(s));
    }
    n
}

/// Sleeps in a set that holds nothing of ours, as far as can be told now.
fn wait_natively(s: &Set, deadline: &Deadline, native: impl FnOnce() -> i32) -> i32 {
    let _ = deadline.has_passed(); // starts the clock
    s.natives.fetch_add(1, SeqCst);
    // SYNC natives: we are counted, then look for a place; it is set, then whoever has waited there looks at the count.
    fence_after_rmw();
    // With a place there is a doorbell to hear, and nothing is to be slept for here.
    let n = if s.place().is_none() { native() } else { 0 };
    s.natives.fetch_sub(1, SeqCst);
    n
}

/// The doorbell that told of the set's place wakes one thread, and perhaps one that was awake anyhow: whoever goes away
/// passes it on to those who still sleep without listening to rings.
fn wake_natives(s: &Set, p: u32) {
    if s.natives.load(SeqCst) > 0 {
        sidestep_sys::fd::ring(place::eventfd(p));
    }
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
        if space_is_due() {
            queue_writers();
        }
        remind::remind(); // a set that is always busy never sleeps
        // One harvest per call: what it reports stays queued if it is level-triggered.
        let calls = s.calls.fetch_add(1, Relaxed);
        let due = calls.is_multiple_of(KERNEL_CALLS)
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

/// Whether something waits to be looked at.
fn has_queued(s: &Set) -> bool {
    s.with(|inner| inner.queued > 0) == Some(true)
}

/// Waits in the kernel alone, for the program's own events.
fn wait_kernel(s: &Set, out: &mut [epoll_event], deadline: &Deadline, mask: *const libc::sigset_t) -> Result<usize> {
    loop {
        let n = kernel_wait(s, out, &deadline.left(None), mask)?;
        let kept = sort(s, out, n);
        if kept > 0 || n == 0 && deadline.has_passed() {
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
    if place::has_news(p) || has_queued(s) {
        place::rise(p);
        return Ok(0);
    }
    let cap = if !link::all().all(|l| l.knows(p)) {
        Some(UNKNOWN_BELL_US)
    } else if expects_space() {
        Some(io::send::STALLED_US)
    } else {
        None
    };
    let began = arch::ticks();
    let result = kernel_wait(s, out, &deadline.left(remind::cap(cap)), mask);
    remind::remind();
    if cap == Some(UNKNOWN_BELL_US) {
        attend_unheard();
    }
    place::rise(p);
    s.asked.store(arch::ticks(), Relaxed);
    s.spin.slept(s.asked.load(Relaxed) - began);
    if result == Ok(0) {
        queue_writers();
    }
    let kept = sort(s, out, result?);
    Ok(kept + harvest(s, p, out, kept))
}

/// Some peer cannot ring here yet, for a connection that nothing else draws our attention to: looks at all of them, but
/// no more often than we would look if nothing happened.
#[cold]
fn attend_unheard() {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let (now, next) = (arch::ticks(), NEXT.load(Relaxed));
    let later = now + clock::ticks_of_us(UNKNOWN_BELL_US);
    if now >= next && NEXT.compare_exchange(next, later, Relaxed, Relaxed).is_ok() {
        fdtable::for_each(|_, kind| {
            if let Kind::Conn(index) = kind {
                io::send::serve(index);
            }
        });
    }
}

fn kernel_wait(
    s: &Set,
    out: &mut [epoll_event],
    left: &Option<libc::timespec>,
    mask: *const libc::sigset_t,
) -> Result<usize> {
    let epfd = s.fd.load(Relaxed);
    let sleep = Sleep::begins();
    // SAFETY: `out` is writable for its length; the timespec is alive; the mask is the program's or null.
    let n = unsafe { next::epoll_pwait2(epfd, out.as_mut_ptr(), out.len() as i32, as_ptr(left), mask) };
    sleep.ended(errno::take(n as isize))
}
