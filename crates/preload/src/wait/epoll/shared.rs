//! Epoll sets that a process has in common with its forked relatives. The kernel reports each event to one waiting thread, in
//! any of the processes, and knows neither our tags nor our doorbells. So:
//!
//! - While a relative has the set, what is added to it stays on the kernel, until the relative has closed the set or has ended
//!   ([`family::is_held`](super::family::is_held)).
//! - Once two processes use a set, everything in it goes to the kernel, for good ([`obey`]). A relative that has inherited a
//!   set and does not use it changes nothing.
//!
//! Each set gets a record in the family's memory before the first fork ([`arena::FamilySet`]). A process that uses the set says
//! so there, and then looks for others. A process that takes a registration over says so, and then looks whether the set is
//! shared.

use super::family::{enter, is_used_here, record};
use super::tag::{self, Source};
use super::{giveback, kernel_ctl};
use crate::drain::Batch;
use crate::fdtable::{self, Kind};
use crate::wait::Deadline;
use crate::wait::sets::{self, Set};
use crate::{arena, errno, generation, waiter};
use arena::FamilySet;
use core::sync::atomic::Ordering::*;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, epoll_event};
use sidestep_abi::Reason;
use sidestep_sys::clock;

/// Longest wait for another process to leave a set to the kernel. A busy process leaves it at its next call on the set.
const LEAVE_US: u64 = 20_000;
/// Interval at which that process is woken; also for a wait that took its events.
const WAKE_US: u64 = 500;
/// This process waits for the set, or registers something in it.
#[inline]
pub(super) fn uses(index: u32) {
    let s = sets::get(index);
    if !is_used_here(s) {
        errno::keep(|| begin_use(s));
    }
    obey(s);
}

#[cold]
fn begin_use(s: &Set) {
    let inherited = s.waiter().is_some() && s.generation.load(Relaxed) != generation::get();
    if let Some(r) = record(s) {
        // SYNC users: each process says that it uses the set, then looks for others, so one of two sees both.
        r.users.fetch_or(arena::bit(), SeqCst);
        if arena::has_others(&r.users) {
            r.is_shared.store(1, SeqCst);
        }
    }
    if inherited {
        giveback::disinherit(s);
    }
    s.used_in.store(generation::get() + 1, Relaxed);
}

/// Leaves the set to the kernel if several processes use it. Every round of a wait calls this.
#[inline]
pub(super) fn obey(s: &Set) {
    if !s.is_shared.load(Relaxed) && record(s).is_some_and(|r| r.is_shared.load(Acquire) != 0) {
        errno::keep(|| leave(s));
    }
}

#[cold]
fn leave(s: &Set) {
    s.is_shared.store(true, SeqCst);
    s.had_waiter.store(true, Relaxed); // events with other processes' tags may come, which the program must not see
    giveback::drain_set_to_kernel(s, &Batch::begin(), Reason::Shared);
    if let Some(r) = record(s) {
        // SYNC shared: a process that finds this bit cleared finds the managed registrations given back to the kernel.
        r.managers.fetch_and(!arena::bit(), SeqCst);
        wait_for_managers(s, r);
    }
}

/// Waits until the other processes that manage registrations here have given them back. They may be asleep in this very set.
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

/// Wakes one thread that waits in the set, in any process.
fn wake(s: &Set) {
    let (epfd, tag) = (s.fd.load(Relaxed), tag::of_wake());
    let Some(always) = waiter::always() else { return };
    let event = (libc::EPOLLIN | libc::EPOLLET) as u32;
    if kernel_ctl(epfd, EPOLL_CTL_ADD, always, event, tag).is_err() {
        let _ = kernel_ctl(epfd, EPOLL_CTL_MOD, always, event, tag);
    }
}

/// A wait has taken events of a shared set. If they belong to registrations of another process, that process has not left the
/// set yet, and may need this wake-up.
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

/// Before fork(): every set gets a record that the child shares. What is added to a set from now on stays on the kernel until
/// one of the two processes has closed the set.
pub fn before_fork() {
    for_each_set(|s| {
        s.is_waited_for.store(false, Relaxed);
        if s.family.load(Relaxed) == 0 {
            s.family.store(arena::alloc_set().unwrap_or(0), Release);
        }
        match record(s) {
            Some(r) => {
                if is_used_here(s) {
                    r.users.fetch_or(arena::bit(), SeqCst);
                }
                if s.waiter().is_some() && s.generation.load(Relaxed) == generation::get() {
                    r.managers.fetch_or(arena::bit(), SeqCst); // the child may close the registered connections, and keep the set
                }
            }
            None => leave(s), // there is no record to coordinate with the child
        }
    });
}

/// Records that the process at this place of the family has all our sets.
pub fn hold(place: u32) {
    for_each_set(|s| {
        if let Some(r) = record(s) {
            enter(r, 1 << place);
        }
    });
}

/// Records that this process, a child made out of our sight, has the sets. A set without a record is left to the kernel. If the
/// family has no place for the process, its relatives leave the set to the kernel, too.
pub fn hold_late() {
    for_each_set(|s| match record(s) {
        Some(r) if arena::bit() != 0 => enter(r, arena::bit()),
        Some(r) => r.is_shared.store(1, SeqCst),
        None => s.is_shared.store(true, Relaxed),
    });
}

fn make_relatives_leave(s: &Set) {
    if let Some(r) = record(s) {
        r.is_shared.store(1, SeqCst);
    }
}

/// Before the fork of a child in another PID namespace, which has the kernel's sets and knows nothing of their records: leaves all
/// sets to the kernel, and makes the relatives do so.
pub fn leave_all() {
    for_each_set(|s| {
        make_relatives_leave(s);
        if !s.is_shared.load(Relaxed) {
            leave(s);
        }
    });
}

/// In such a child. Events with its relatives' tags may still come. If the library has not seen the fork, the relatives learn here
/// that they are to leave the sets to the kernel.
pub fn leave_family_in_child() {
    for_each_set(|s| {
        make_relatives_leave(s);
        s.family.store(0, Relaxed);
        s.is_shared.store(true, Relaxed);
        s.had_waiter.store(true, Relaxed);
    });
}

/// The set is about to be another program's, too, which could make nothing of our tags: leaves it to the kernel, for good.
pub fn hand_over(index: u32, batch: &Batch, reason: Reason) {
    uses(index); // registrations in an inherited set are a relative's to give back
    giveback::leave_in_batch(index, batch, reason);
}

/// Before exec(): the same for the sets that the new program inherits. If the exec() fails, they stay with the kernel.
pub fn hand_over_before_exec(batch: &Batch, survives: impl Fn(i32) -> bool) {
    fdtable::for_each(|fd, kind| {
        if let Kind::Set(index) = kind
            && has_own_tags(sets::get(index))
            && survives(fd)
        {
            hand_over(index, batch, Reason::Exec);
        }
    });
}

/// Whether the kernel's set may have tags that this process has put there.
fn has_own_tags(s: &Set) -> bool {
    s.had_waiter.load(Relaxed) && s.generation.load(Relaxed) == generation::get()
}

/// Before exec(): this process gives up the sets that exec() closes, and says which ones it takes along.
pub fn before_exec(survives: impl Fn(i32) -> bool) {
    for_each_set(|s| {
        if !any_number(s, &survives) {
            leave_family(s);
            s.used_in.store(0, Relaxed); // for the case that exec() fails
        } else if let Some(r) = record(s) {
            r.executed.fetch_or(arena::bit(), SeqCst);
        }
    });
}

/// Whether a descriptor of the set passes the test.
fn any_number(s: &Set, test: impl Fn(i32) -> bool) -> bool {
    let mut found = false;
    fdtable::for_each(|fd, kind| {
        found = found || matches!(kind, Kind::Set(index) if core::ptr::eq(sets::get(index), s)) && test(fd);
    });
    found
}

/// This process closes its last descriptor of the set.
pub(super) fn close(s: &Set) {
    leave_family(s);
    s.family.store(0, Relaxed);
}

fn leave_family(s: &Set) {
    if let Some(r) = record(s) {
        arena::leave_holders(&[&r.managers, &r.users, &r.holders]);
    }
}

fn for_each_set(mut each: impl FnMut(&'static Set)) {
    fdtable::for_each(|_, kind| {
        if let Kind::Set(index) = kind {
            each(sets::get(index));
        }
    });
}
