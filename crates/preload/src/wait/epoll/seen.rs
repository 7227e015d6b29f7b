//! Whether a program's waits come by us. Some register by libc, and wait by a system call of their own: being registered is
//! no proof of being waited for. Until a wait for its sets has been seen, a connection stays on the kernel.

use super::entries::{self, FEW};
use super::giveback::{drop_bell, for_each_managed};
use super::tag::{self, Source};
use super::takeover::{has_unmanaged, manage, manage_one_shot};
use super::{ONESHOT, family, news, report, shared};
use crate::fdtable::{self, Kind};
use crate::record::flag;
use crate::wait::sets::{self, Reg, Set};
use crate::wait::{Deadline, NOW};
use crate::{arena, critical, drain, errno, suspend};
use core::cell::Cell;
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::*;
use libc::epoll_event;
use sidestep_abi::Reason;
use sidestep_sys::{arch, clock};

/// An upgraded connection is in the set, in the kernel's way: another thread has attached it just now, or nothing of the
/// set can be ours.
#[cold]
pub(super) fn share(s: &Set, conn: u32, fd: i32, events: u32) {
    let c = arena::conn(conn);
    if arena::is_inherited(c) {
        // The set may be the parent's, too: its waits are to be told by the kernel.
        return drain::to_kernel(c, fd, Reason::Shared);
    }
    if !is_seen(s) {
        return suspend::suspend(c, fd);
    }
    manage_all(conn, fd, events & ONESHOT == 0);
}

/// Takes over whatever registrations of an upgraded connection are the kernel's still. If all are ours then, it may use rings.
fn manage_all(conn: u32, fd: i32, armed: bool) {
    let c = arena::conn(conn);
    match manage(conn, c, fd, armed) {
        Err(reason) => drain::to_kernel(c, fd, reason),
        Ok(()) if may_use_rings(conn) => suspend::resume(c),
        Ok(()) => suspend::suspend(c, fd),
    }
}

/// Whether all registrations of an upgraded connection, under whatever number, are ours to report, and in sets whose waits come
/// by us.
fn may_use_rings(conn: u32) -> bool {
    let mut may = true;
    super::for_each_number(conn, |fd| may &= may_be_offered(fd) != Some(false) && !has_unmanaged(fd));
    may
}

/// A wait for this set has come by us.
#[inline]
pub fn saw_wait(index: u32) {
    let s = sets::get(index);
    if !s.is_waited_for.load(Relaxed) {
        errno::keep(|| trust_once(s));
    }
}

/// Longest wait for another thread that does the same. It takes microseconds, but on a busy machine its turn may come late.
const CHANGE_US: u64 = 1_000_000;
const CHANGE_LOOK_US: u64 = 20;

/// Of several threads that begin to wait together one takes over what is there. The others wait for it: the kernel would tell them
/// in its own way what is told once more in ours.
#[cold]
fn trust_once(s: &Set) {
    // No handler of the program runs in between, which might jump out, or wait for what another thread does.
    let is_done = critical::section(|| {
        let is_first = !s.is_changing.swap(true, Acquire);
        if is_first {
            trust(s);
            s.is_changing.store(false, Release);
        }
        is_first
    });
    if is_done {
        return;
    }
    let deadline = Deadline::after_ns(Some(CHANGE_US * 1000));
    while s.is_changing.load(Acquire) && !deadline.has_passed() {
        clock::nap_us(CHANGE_LOOK_US);
    }
}

fn trust(s: &Set) {
    if family::is_held(s) {
        return;
    }
    // What a parent has upgraded is registered as the parent last asked, which is not known here: the kernel's care.
    for_each_in(s, |fd, conn| {
        if arena::is_inherited(arena::conn(conn)) {
            drain::to_kernel(arena::conn(conn), fd, Reason::Shared);
        }
    });
    let mut ready = [const { MaybeUninit::uninit() }; FEW];
    let ready = in_order(s, &mut ready);
    // Before anybody waits here.
    for_each_own(s, |fd, conn| {
        let has_fired = |data| ready.iter().any(|event| event.u64 == data);
        manage_one_shot(s, arena::conn(conn), conn, fd, Some(&has_fired))
    });
    s.is_waited_for.store(true, Release);
    for_each_own(s, |fd, conn| {
        if may_be_offered(fd) == Some(true) {
            manage_all(conn, fd, false);
        }
    });
    // The kernel tells once more of what was taken over while it was readable: that is the same news.
    let mut more = [const { MaybeUninit::uninit() }; FEW];
    let more = in_order(s, &mut more);
    news::hear_kernel(s, ready);
    news::hear_kernel(s, more);
    list_anew(s, ready);
    arm_others(s, more);
}

/// What the kernel has ready in a set that holds upgraded connections, in its order.
fn in_order<'a>(s: &Set, room: &'a mut [MaybeUninit<epoll_event>]) -> &'a [epoll_event] {
    let any = Cell::new(false);
    for_each_own(s, |_, _| any.set(true));
    if !any.get() {
        return &[];
    }
    entries::ask(s, room, &NOW, core::ptr::null()).unwrap_or(&[])
}

/// Lists what has been taken over in the order in which the kernel had it `ready`.
fn list_anew(s: &Set, ready: &[epoll_event]) {
    if ready.is_empty() {
        return;
    }
    s.with(|inner| {
        let mut only_ours = true;
        for event in ready {
            let (fd, is_new) = match tag::source(event.u64) {
                Source::Managed(fd) => (Some(fd), false),
                _ => (report::registered(&mut inner.regs, event.u64, Reg::is_awaited), true),
            };
            if let Some(fd) = fd {
                inner.ready.list.remove(&mut inner.regs, fd as u32);
                if is_new {
                    inner.hear_edge(fd)
                } else {
                    inner.hear(fd, arch::ticks())
                };
                inner.settle();
            } else if core::mem::take(&mut only_ours) {
                inner.ready.arm(arch::ticks()); // what is listed by now comes before all that the kernel has
            }
        }
    });
    arm_others(s, ready);
}

/// Has the kernel say once more what it has told us, and not the program.
fn arm_others(s: &Set, told: &[epoll_event]) {
    if told.is_empty() || !s.has_edge.load(Relaxed) {
        return;
    }
    let is_told = |data| told.iter().any(|event| event.u64 == data);
    s.with(|inner| (0..inner.top).for_each(|fd| report::arm_again(s, &mut inner.regs, fd, is_told)));
}

/// Those that this process has upgraded.
fn for_each_own(s: &Set, each: impl Fn(i32, u32)) {
    for_each_in(s, |fd, conn| {
        if !arena::is_inherited(arena::conn(conn)) {
            each(fd, conn);
        }
    });
}

/// The upgraded connections of a set.
fn for_each_in(s: &Set, each: impl Fn(i32, u32)) {
    fdtable::for_each(|fd, kind| {
        if let Kind::Conn(conn) = kind
            && arena::conn(conn).is_attached()
            && s.has(fd, Reg::is_present)
        {
            each(fd, conn);
        }
    });
}

/// The set does not hold `fd` any more.
#[cold]
pub(super) fn removed(s: &Set, fd: i32) {
    if !is_seen(s) {
        return reconsider(fd);
    }
    // Who takes it out for each message, and puts it back to wait for the next one, is seen to wait for it.
    if let Kind::Conn(conn) = fdtable::get(fd) {
        arena::conn(conn).raise(flag::WAITED);
    }
}

/// A set does not hold `fd` any more, or in our way.
pub(super) fn reconsider(fd: i32) {
    if let Kind::Conn(conn) = fdtable::get(fd)
        && arena::conn(conn).is_attached()
        && suspend::is_suspended(arena::conn(conn))
        && may_use_rings(conn)
    {
        suspend::resume(arena::conn(conn));
    }
}

/// Whether the set's waits can be expected to come by us. Some programs register by libc, and wait by a system call of
/// their own.
pub(super) fn is_seen(s: &Set) -> bool {
    s.is_waited_for.load(Acquire)
}

/// Whether a connection may use rings as far as the sets are concerned: we have seen a wait for each that holds it. None: no
/// set holds it.
pub fn may_be_offered(fd: i32) -> Option<bool> {
    sets::all()
        .filter(|(_, s)| s.has(fd, Reg::is_present))
        .map(|(_, s)| s.is_waited_for.load(Acquire))
        .reduce(|all, one| all && one)
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
        for_each_managed(s, |_, c| drop_bell(s, c));
        s.destroy();
        shared::close(s);
    }
    if s.refs.fetch_sub(1, AcqRel) == 1 && !s.is_waited_for.load(Relaxed) {
        fdtable::for_each(|fd, kind| {
            if matches!(kind, Kind::Conn(_)) {
                reconsider(fd);
            }
        });
    }
}
