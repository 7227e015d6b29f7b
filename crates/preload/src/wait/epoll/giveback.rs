//! Registrations that are the kernel's again: given back when a connection returns or ends, and when a set is no longer ours.

use super::{ET, EXCLUSIVE, ONESHOT, kernel_ctl};
use crate::fdtable::{self, Kind};
use crate::record::Conn;
use crate::wait::readiness::HUP;
use crate::wait::sets::{self, Reg, Regs, Set, reg};
use crate::{arena, drain, waiter};
use core::sync::atomic::Ordering::*;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD};
use sidestep_abi::Reason;
use sidestep_ring::side;
use sidestep_sys::Result;

/// Changes the kernel's registration of `fd`. `events`: what the program has asked for. With EPOLLEXCLUSIVE the kernel lets nobody
/// change a registration.
pub(super) fn put(s: &Set, fd: i32, events: u32, (mask, data): (u32, u64)) -> Result<()> {
    let epfd = s.fd.load(Relaxed);
    if events & EXCLUSIVE == 0 {
        return kernel_ctl(epfd, EPOLL_CTL_MOD, fd, mask, data);
    }
    kernel_ctl(epfd, EPOLL_CTL_DEL, fd, 0, 0)?;
    kernel_ctl(epfd, EPOLL_CTL_ADD, fd, mask, data)
}

/// A one-shot registration that has fired stays ours, and silent, until the program changes it: asked for no event the
/// kernel would still tell of errors.
pub(super) fn hand_back(s: &Set, regs: &mut Regs, fd: i32) {
    let Some(r) = regs.get(fd).filter(|r| r.is_managed() && r.state & reg::DISARMED == 0) else { return };
    r.state &= !reg::MANAGED;
    if !r.is_present() {
        let _ = kernel_ctl(s.fd.load(Relaxed), EPOLL_CTL_DEL, fd, 0, 0);
        return;
    }
    let (events, data) = (r.events, r.data);
    note_native(s, events);
    let _ = put(s, fd, events, (events, data));
    s.asked.store(0, Relaxed); // the kernel may have something at once
}

/// The set has a registration of the kernel's.
pub(super) fn note_native(s: &Set, events: u32) {
    let flag = if events & (ET | ONESHOT) == 0 { &s.has_level } else { &s.has_edge };
    flag.store(true, Relaxed);
}

/// What the program has taken out of the set, and is in it for us only, leaves the kernel's set too.
pub fn unpark(s: &Set, fd: i32) {
    s.with(|inner| {
        if inner.reg(fd).is_some_and(|r| r.is_managed() && !r.is_present()) {
            hand_back(s, &mut inner.regs, fd);
        }
    });
}

/// Gives the registrations of `fd` back to the kernel's own care, as the program made them.
fn restore(fd: i32) {
    for (_, s) in sets::all() {
        s.with(|inner| hand_back(s, &mut inner.regs, fd));
    }
}

/// The connection is native again, for good. An edge-triggered registration that has been told of the connection's end stays
/// ours: to give it back would tell it once more. Should the kernel have further news of it, it goes back with that.
pub fn demoted(fd: i32) {
    let is_over = |r: &Reg| {
        r.is_awaited() && r.events & ET != 0 && r.ends & HUP != 0 && r.state & reg::EDGE == 0 && !r.is_listed()
    };
    for (_, s) in sets::all() {
        s.with(|inner| {
            if !inner.reg(fd).is_some_and(|r| is_over(r)) {
                hand_back(s, &mut inner.regs, fd);
            }
        });
    }
}

/// The connection ends, and its number with its registrations stays. A one-shot registration that has fired says nothing before the
/// program changes it, and then to the kernel.
pub fn return_to_kernel(fd: i32) {
    for (_, s) in sets::all() {
        s.with(|inner| {
            hand_back(s, &mut inner.regs, fd);
            match inner.reg(fd) {
                Some(r) if r.is_present() => r.state = reg::PRESENT,
                _ => inner.clear(fd),
            }
        });
    }
}

/// Before the last close of a socket: forgets `fd` everywhere. `offered`: its offer is on the way, and the broker's
/// descriptor would keep it in the kernel's sets, with events for a number that may be somebody else's by then.
pub fn remove(fd: i32, offered: bool) {
    for (_, s) in sets::all() {
        s.with(|inner| {
            if offered && inner.reg(fd).is_some_and(|r| r.is_present()) {
                let _ = kernel_ctl(s.fd.load(Relaxed), EPOLL_CTL_DEL, fd, 0, 0);
            }
            inner.clear(fd);
        });
    }
}

/// Before one of several numbers of a connection is closed. What the program has registered under it lives on in the kernel,
/// which knows the connection by its other numbers, and out of everybody's reach: so it is the kernel's care from now on. What
/// only we had left there goes.
pub fn abandon(fd: i32) {
    for (_, s) in sets::all() {
        s.with(|inner| {
            if inner.reg(fd).is_some_and(|r| r.is_managed() && r.state & reg::DISARMED != 0) {
                let _ = kernel_ctl(s.fd.load(Relaxed), EPOLL_CTL_DEL, fd, 0, 0);
            }
            hand_back(s, &mut inner.regs, fd);
            inner.clear(fd);
        });
    }
}

/// A set that a forked child shares with its parent: what is in it goes back to the kernel's care, for both.
#[cold]
pub(super) fn disinherit(s: &Set) {
    for_each_managed(s, |fd, c| {
        drain::to_kernel(c, fd, Reason::Shared);
        restore(fd);
    });
    s.set_no_place();
}

/// A set that several processes use: what is in it goes back to the kernel's care, for good.
#[cold]
pub(super) fn surrender_set(s: &Set) {
    for_each_managed(s, |fd, c| {
        drain::to_kernel(c, fd, Reason::Shared);
        drop_bell(s, c);
        s.with(|inner| hand_back(s, &mut inner.regs, fd));
    });
    if let Some(p) = s.place() {
        let _ = kernel_ctl(s.fd.load(Relaxed), EPOLL_CTL_DEL, waiter::doorbell(p), 0, 0);
        s.give_place_up();
    }
}

/// Gives up the doorbells of a set and of those in it. False: they have none.
#[cold]
pub(super) fn give_way(index: u32, depth: u32) -> bool {
    let s = sets::get(index);
    let mut gave = false;
    if let Some(p) = s.place() {
        for_each_managed(s, |fd, c| {
            drain::both(c, fd, Reason::Places);
            drop_bell(s, c);
            restore(fd);
        });
        s.give_place_up();
        gave = kernel_ctl(s.fd.load(Relaxed), EPOLL_CTL_DEL, waiter::doorbell(p), 0, 0).is_ok();
    }
    if depth > 0 {
        sets_in(s, |inner| gave |= give_way(inner, depth - 1));
    }
    gave
}

/// Whether `wanted` is this set, or somewhere in it.
#[cold]
pub(super) fn holds(index: u32, wanted: u32, depth: u32) -> bool {
    let mut found = index == wanted;
    if depth > 0 {
        sets_in(sets::get(index), |inner| found |= holds(inner, wanted, depth - 1));
    }
    found
}

fn sets_in(s: &Set, mut each: impl FnMut(u32)) {
    fdtable::for_each(|fd, kind| {
        if let Kind::Set(inner) = kind
            && s.has(fd, Reg::is_present)
        {
            each(inner);
        }
    });
}

/// The set is about to be waited for by the kernel itself (io_uring): nothing in it is ours to report any more, for good.
#[cold]
pub fn leave_to_kernel(index: u32, reason: Reason) {
    let s = sets::get(index);
    s.is_kernels.store(true, Relaxed);
    for_each_managed(s, |fd, c| {
        drain::to_kernel(c, fd, reason);
        s.with(|inner| hand_back(s, &mut inner.regs, fd));
    });
    if let Some(p) = s.place() {
        let _ = kernel_ctl(s.fd.load(Relaxed), EPOLL_CTL_DEL, waiter::doorbell(p), 0, 0);
        s.destroy();
    }
}

pub(super) fn for_each_managed(s: &Set, mut each: impl FnMut(i32, &'static Conn)) {
    fdtable::for_each(|fd, kind| {
        if let Kind::Conn(index) = kind
            && s.has(fd, Reg::is_managed)
        {
            each(fd, arena::conn(index));
        }
    });
}

pub(super) fn drop_bell(s: &Set, c: &Conn) {
    if let Some(p) = s.place() {
        side::remove_doorbell(&c.words().side[c.my_side()], p);
    }
}
