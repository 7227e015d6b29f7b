//! Epoll sets that a process has in common with its forked relatives. The kernel tells each event to one waiter, in
//! whatever process that is, and knows nothing of our tags and doorbells. So
//!
//! - what is put into a set while a relative has it, too, waits on the kernel until the relative has closed it, or ended
//!   ([`family::is_held`](super::family::is_held));
//! - once two processes use a set, everything in it is the kernel's, for good ([`obey`]). A relative that has inherited a
//!   set and does not use it changes nothing for what is there.
//!
//! Each set gets a record in the family's memory before the first fork ([`arena::FamilySet`]). Who uses the set says so
//! there, and then looks for others; who takes a registration over says so, and then looks whether the set is shared.

use super::family::{mine, record};
use super::tag::{self, Source};
use super::{giveback, kernel_ctl};
use crate::fdtable::{self, Kind};
use crate::wait::Deadline;
use crate::wait::sets::{self, Set};
use crate::{arena, errno, generation, waiter};
use arena::FamilySet;
use core::sync::atomic::Ordering::*;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, epoll_event};
use sidestep_sys::clock;

/// Longest wait for another process to leave a set to the kernel. One that does something else leaves it when it comes back.
const LEAVE_US: u64 = 20_000;
/// How often it is woken meanwhile, and by a wait that takes its events.
const WAKE_US: u64 = 500;
/// This process waits for the set, or registers something in it.
#[inline]
pub(super) fn uses(index: u32) {
    let s = sets::get(index);
    if s.used_in.load(Relaxed) != generation::get() + 1 {
        errno::keep(|| begin_use(s));
    }
    obey(s);
}

#[cold]
fn begin_use(s: &Set) {
    let inherited = s.place().is_some() && s.generation.load(Relaxed) != generation::get();
    if let Some(r) = record(s) {
        // SYNC users: each process says that it uses the set, then looks for others, so one of two sees both.
        r.users.fetch_or(mine(), SeqCst);
        if arena::has_others(&r.users) {
            r.is_shared.store(1, SeqCst);
        }
    }
    if inherited {
        giveback::disinherit(s);
    }
    s.used_in.store(generation::get() + 1, Relaxed);
}

/// Leaves the set to the kernel if several processes use it. Every turn of a wait looks.
#[inline]
pub(super) fn obey(s: &Set) {
    if !s.is_shared.load(Relaxed) && record(s).is_some_and(|r| r.is_shared.load(Acquire) != 0) {
        errno::keep(|| leave(s));
    }
}

#[cold]
fn leave(s: &Set) {
    s.is_shared.store(true, SeqCst);
    s.had_place.store(true, Relaxed); // events of others' tags may come, and are not the program's
    giveback::surrender_set(s);
    if let Some(r) = record(s) {
        // SYNC shared: who finds this bit gone finds what was managed in the kernel's care.
        r.managers.fetch_and(!mine(), SeqCst);
        wait_for_managers(s, r);
    }
}

/// Whoever manages something here that we do not know must leave it to the kernel, too. They may be asleep in this very set.
fn wait_for_managers(s: &Set, r: &FamilySet) {
    let deadline = Deadline::after_ns(Some(LEAVE_US * 1000));
    while arena::has_others(&r.managers) && !deadline.has_passed() {
        wake(s);
        clock::nap_us(WAKE_US);
    }
    if let Some(always) = waiter::always() {
        let _ = kernel_ctl(s.fd.load(Relaxed), EPOLL_CTL_DEL, always, 0, 0);
    }
}

/// Wakes one thread that waits for the set, in whatever process.
fn wake(s: &Set) {
    let (epfd, tag) = (s.fd.load(Relaxed), tag::of_wake());
    let Some(always) = waiter::always() else { return };
    let event = (libc::EPOLLIN | libc::EPOLLET) as u32;
    if kernel_ctl(epfd, EPOLL_CTL_ADD, always, event, tag).is_err() {
        let _ = kernel_ctl(epfd, EPOLL_CTL_MOD, always, event, tag);
    }
}

/// What a wait has taken from a set that is the kernel's: if an event of another process's registrations is among it, that
/// process has yet to leave the set, and may need the wake-up.
#[cold]
pub(super) fn took_foreign(s: &Set, found: &[epoll_event]) {
    let foreign = |e: &epoll_event| matches!(tag::source(e.u64), Source::Doorbell | Source::Managed(_));
    if s.is_shared.load(Relaxed)
        && found.iter().any(foreign)
        && record(s).is_some_and(|r| arena::has_others(&r.managers))
    {
        wake(s);
        clock::nap_us(WAKE_US);
    }
}

/// Before fork(): every set gets a record that the child has, too. What is put into it from now on waits until one of the two
/// has closed it.
pub fn before_fork() {
    for_each_set(|s| {
        s.is_waited_for.store(false, Relaxed);
        if s.family.load(Relaxed) == 0 {
            s.family.store(arena::alloc_set().unwrap_or(0), Release);
        }
        match record(s) {
            Some(r) => {
                if s.used_in.load(Relaxed) == generation::get() + 1 {
                    r.users.fetch_or(mine(), SeqCst);
                }
                if s.place().is_some() && s.generation.load(Relaxed) == generation::get() {
                    r.managers.fetch_or(mine(), SeqCst); // the child may close what is in it, and keep the set
                }
            }
            None => leave(s), // no room for what would have to be said
        }
    });
}

/// The process in this place of the family has all our sets.
pub fn hold(place: u32) {
    for_each_set(|s| {
        if let Some(r) = record(s) {
            r.holders.fetch_or(1 << place, SeqCst);
        }
    });
}

/// The same for this very process, a child that was made out of sight. What its parent says nothing of is the kernel's.
pub fn hold_late() {
    for_each_set(|s| match record(s) {
        Some(r) => drop(r.holders.fetch_or(mine(), SeqCst)),
        None => s.is_shared.store(true, Relaxed),
    });
}

/// Before exec(): who becomes another program does not have the sets any more that are closed then.
pub fn before_exec(survives: impl Fn(i32) -> bool) {
    for_each_set(|s| {
        if !survives(s.fd.load(Relaxed)) {
            leave_family(s);
            s.used_in.store(0, Relaxed); // should exec() fail
        }
    });
}

/// The last number of the set is being closed here.
pub(super) fn close(s: &Set) {
    leave_family(s);
    s.family.store(0, Relaxed);
}

fn leave_family(s: &Set) {
    if let Some(r) = record(s) {
        for word in [&r.managers, &r.users, &r.holders] {
            word.fetch_and(!mine(), SeqCst);
        }
    }
}

fn for_each_set(mut each: impl FnMut(&'static Set)) {
    fdtable::for_each(|_, kind| {
        if let Kind::Set(index) = kind {
            each(sets::get(index));
        }
    });
}
