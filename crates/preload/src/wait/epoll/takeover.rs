//! Which registrations are ours to report: taken over when a connection upgrades, given back when it returns.

use super::{DOORBELL, ET, EXCLUSIVE, MANAGED, ONESHOT, TAG, kernel_ctl, kick};
use crate::fdtable::{self, Kind};
use crate::record::Conn;
use crate::wait::readiness::IN;
use crate::wait::sets::{self, Inner, Reg, Set, reg};
use crate::{arena, attach, life, place};
use core::sync::atomic::Ordering::*;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD};
use sidestep_abi::Reason;
use sidestep_sys::{Result, fdinfo};

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
    let Some(r) = inner.reg(fd).filter(|r| r.is_native()) else {
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

/// Takes over what [`manage`] could not judge: one-shot registrations that fired before the connection was attached and
/// have not been armed since. A look into /proc tells.
#[cold]
pub fn manage_fired(c: &Conn, index: u32, fd: i32) {
    for (_, s) in sets::all() {
        let taken = s.with(|inner| {
            let r = inner.reg(fd).filter(|r| r.is_native() && r.events & (ONESHOT | EXCLUSIVE) == ONESHOT)?;
            let mask = fdinfo::epoll_mask(s.fd.load(Relaxed), fd)?;
            if mask & !PRIVATE != 0 || s.clash.load(Relaxed) {
                return None; // it is armed, and will fire
            }
            r.conn = index;
            let p = ensure_place(s)?;
            kernel_ctl(s.fd.load(Relaxed), EPOLL_CTL_MOD, fd, MANAGED, TAG | u64::from(fd as u32)).ok()?;
            inner.reg(fd)?.state |= reg::MANAGED | reg::DISARMED;
            Some(p)
        });
        if let Some(Some(p)) = taken {
            c.words().side[c.my_side()].bells.fetch_or(1 << p, SeqCst);
        }
    }
}

/// What the kernel leaves of the mask of a one-shot registration that has fired.
const PRIVATE: u32 = ONESHOT | ET | EXCLUSIVE | libc::EPOLLWAKEUP as u32;

/// Registers `fd` with the kernel in our way at once, as the program asked with ADD or MOD. None: that cannot be done.
pub(super) fn take_over(s: &Set, index: u32, op: i32, fd: i32, wanted: (u32, u64)) -> Option<Result<usize>> {
    let was_native = s.has(fd, Reg::is_native);
    if (op == EPOLL_CTL_ADD) == was_native {
        return None; // the kernel says what is wrong with it
    }
    let p = s.with(|_| ensure_place(s)).flatten()?; // one place for a set, whoever is first
    if let Err(e) = kernel_ctl(s.fd.load(Relaxed), op, fd, MANAGED, TAG | u64::from(fd as u32)) {
        return Some(Err(e));
    }
    s.with(|inner| {
        if let Some(r) = inner.reg(fd) {
            (r.events, r.data) = wanted;
            r.conn = index;
            r.state = r.state & reg::QUEUED | reg::PRESENT | reg::MANAGED;
        }
    });
    let c = arena::conn(index);
    c.words().side[c.my_side()].bells.fetch_or(1 << p, SeqCst);
    // From the arming of the bell on everything is heard; what came before is looked at once.
    s.with(|inner| inner.queue(fd));
    kick(s);
    Some(Ok(0))
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

/// Whether some set still watches `fd` in the kernel's way.
pub fn has_unmanaged(fd: i32) -> bool {
    sets::all().any(|(_, s)| s.has(fd, Reg::is_native))
}

/// Whether some set holds `fd`.
pub fn is_member(fd: i32) -> bool {
    sets::all().any(|(_, s)| s.has(fd, Reg::is_present))
}

/// Gives the registrations of `fd` back to the kernel's own care, as the program made them.
pub fn restore(fd: i32) {
    for (_, s) in sets::all() {
        s.with(|inner| hand_back(s, inner, fd));
    }
}

pub(super) fn hand_back(s: &Set, inner: &mut Inner, fd: i32) {
    let Some(r) = inner.reg(fd).filter(|r| r.is_managed()) else { return };
    r.state &= !reg::MANAGED;
    if !r.is_present() {
        let _ = kernel_ctl(s.fd.load(Relaxed), EPOLL_CTL_DEL, fd, 0, 0);
        return;
    }
    let (events, data) = (if r.state & reg::DISARMED != 0 { 0 } else { r.events }, r.data);
    let _ = kernel_ctl(s.fd.load(Relaxed), EPOLL_CTL_MOD, fd, events, data);
    s.asked.store(0, Relaxed); // the kernel may have something at once
}

/// Before the last close of a socket: forgets `fd` everywhere. `offered`: its offer is on the way, and the broker's
/// descriptor would keep it in the kernel's sets, with events for a number that may be somebody else's by then.
pub fn forget(fd: i32, offered: bool) {
    for (_, s) in sets::all() {
        s.with(|inner| {
            if offered && inner.reg(fd).is_some_and(|r| r.is_present()) {
                let _ = kernel_ctl(s.fd.load(Relaxed), EPOLL_CTL_DEL, fd, 0, 0);
            }
            inner.clear(fd);
        });
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
        for_each_managed(s, |_, c| drop_bell(s, c));
        s.destroy();
    }
    s.refs.fetch_sub(1, AcqRel);
}

/// A set that a forked child shares with its parent: what is in it goes back to the kernel's care, for both.
#[cold]
pub(super) fn disinherit(s: &Set) {
    for_each_managed(s, |fd, c| {
        life::surrender(c, fd, Reason::Shared);
        restore(fd);
    });
    s.set_no_place();
}

fn for_each_managed(s: &Set, mut each: impl FnMut(i32, &'static Conn)) {
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
        c.words().side[c.my_side()].bells.fetch_and(!(1 << p), SeqCst);
    }
}
