//! Giving registrations back to the kernel: when a connection returns or ends, and when the library stops managing a set.

use super::family::is_used_here;
use super::{ET, EXCLUSIVE, ONESHOT, kernel_ctl, own_waiter};
use crate::drain::{self, Batch};
use crate::fdtable::{self, Kind};
use crate::record::Conn;
use crate::wait::readiness::HUP;
use crate::wait::sets::{self, Reg, Regs, Set, reg};
use crate::{arena, waiter};
use core::sync::atomic::Ordering::*;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD};
use sidestep_abi::Reason;
use sidestep_ring::side;
use sidestep_sys::{Result, fd as fdsys};

/// Changes the kernel's registration of `fd`. `events`: the program's own. With EPOLLEXCLUSIVE the kernel refuses changes, so
/// the registration is removed and added again.
pub(super) fn put(s: &Set, fd: i32, events: u32, (mask, data): (u32, u64)) -> Result<()> {
    let epfd = s.fd.load(Relaxed);
    if events & EXCLUSIVE == 0 {
        return kernel_ctl(epfd, EPOLL_CTL_MOD, fd, mask, data);
    }
    kernel_ctl(epfd, EPOLL_CTL_DEL, fd, 0, 0)?;
    kernel_ctl(epfd, EPOLL_CTL_ADD, fd, mask, data)
}

/// Gives a registration back. A one-shot registration that has fired stays managed, and silent, until the program changes it:
/// even with an empty mask the kernel would report errors of it.
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
    s.asked.store(0, Relaxed); // the kernel may have an event at once
}

/// Gives back a one-shot registration that has fired, from a set in which nothing may keep a tag of ours: the program's own waits
/// would report the tag. Until the program changes it, the kernel reports nothing of it but an error or a hang-up.
#[cold]
fn hand_back_fired(s: &Set, regs: &mut Regs, fd: i32) {
    let Some(r) = regs.get(fd).filter(|r| r.is_managed()) else { return };
    r.state = reg::PRESENT;
    let (events, data) = (r.events, r.data);
    note_native(s, events);
    let _ = put(s, fd, events, (events & (ET | ONESHOT), data));
}

/// The kernel has a registration of its own in the set.
pub(super) fn note_native(s: &Set, events: u32) {
    let flag = if events & (ET | ONESHOT) == 0 { &s.has_level } else { &s.has_edge };
    flag.store(true, Relaxed);
}

/// Takes a registration that was set aside out of the kernel's set, as the program has already.
pub fn drop_set_aside(s: &Set, fd: i32) {
    s.with(|inner| {
        if inner.reg(fd).is_some_and(|r| r.is_managed() && !r.is_present()) {
            hand_back(s, &mut inner.regs, fd);
        }
    });
}

/// Gives the registrations of `fd` in all sets back to the kernel, as the program made them.
fn restore(fd: i32) {
    for (_, s) in sets::all() {
        s.with(|inner| hand_back(s, &mut inner.regs, fd));
    }
}

/// The connection is native again, for good. An edge-triggered registration that has reported the connection's end stays
/// managed: the kernel would report the end once more. If the kernel has further news of it, the registration is given back
/// then.
pub fn demoted(fd: i32) {
    // While the stack gives a connection back its socket seems to have ended.
    let has_ended = || fdsys::poll_now(fd, 0) & libc::POLLHUP != 0;
    let is_over = |r: &Reg| {
        let is_told = r.ends & HUP != 0 && r.state & reg::EDGE == 0 && !r.is_listed();
        r.is_awaited() && r.events & ET != 0 && is_told && has_ended()
    };
    for (_, s) in sets::all() {
        s.with(|inner| {
            if !inner.reg(fd).is_some_and(|r| is_over(r)) {
                hand_back(s, &mut inner.regs, fd);
            }
        });
    }
}

/// The connection ends, while its descriptor stays open and registered. A one-shot registration that has fired must report
/// nothing until the program changes it, which the kernel then handles.
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

/// Before the last close of a socket: removes the registrations of `fd`. `is_shared`: an offer is on its way. Then the broker's
/// descriptor would keep the registration in the kernel's sets, with events for a descriptor that may be another file's by
/// then.
pub fn remove(fd: i32, is_shared: bool) {
    for (_, s) in sets::all() {
        s.with(|inner| {
            if is_shared && inner.reg(fd).is_some_and(|r| r.is_present()) {
                let _ = kernel_ctl(s.fd.load(Relaxed), EPOLL_CTL_DEL, fd, 0, 0);
            }
            inner.clear(fd);
        });
    }
}

/// Before one of several descriptors of a connection is closed. The program's registrations under it live on in the kernel,
/// since the socket stays open, but nobody can change them any more. So they are given back now. One-shot registrations that
/// have fired are removed. In a set that a forked child has inherited and not used, the registrations are its parent's.
pub fn abandon(fd: i32) {
    for (_, s) in sets::all() {
        let is_parents = !is_used_here(s);
        s.with(|inner| {
            if is_parents {
                return inner.clear(fd);
            }
            if inner.reg(fd).is_some_and(|r| r.is_managed() && r.state & reg::DISARMED != 0) {
                let _ = kernel_ctl(s.fd.load(Relaxed), EPOLL_CTL_DEL, fd, 0, 0);
            }
            hand_back(s, &mut inner.regs, fd);
            inner.clear(fd);
        });
    }
}

/// Gives everything in the set back to the kernel: a forked child shares the set with its parent.
#[cold]
pub(super) fn disinherit(s: &Set) {
    let batch = Batch::begin();
    for_each_managed(s, |fd, c| {
        batch.to_kernel(c, fd, Reason::Shared);
        restore(fd);
    });
    s.set_no_waiter();
}

/// Gives everything in the set back to the kernel for good.
#[cold]
pub(super) fn drain_set_to_kernel(s: &Set, batch: &Batch, reason: Reason) {
    for_each_managed(s, |fd, c| {
        batch.to_kernel(c, fd, reason);
        drop_doorbell(s, c);
        s.with(|inner| {
            hand_back(s, &mut inner.regs, fd);
            if s.is_kernels.load(Relaxed) {
                hand_back_fired(s, &mut inner.regs, fd);
            }
        });
    });
    if let Some(p) = s.waiter() {
        let _ = kernel_ctl(s.fd.load(Relaxed), EPOLL_CTL_DEL, waiter::doorbell(p), 0, 0);
        s.give_waiter_up();
    }
}

/// Gives up the doorbells of a set and of the sets in it. False: there were none.
#[cold]
pub(super) fn give_way(index: u32, depth: u32) -> bool {
    let s = sets::get(index);
    let mut gave = false;
    if let Some(p) = s.waiter() {
        for_each_managed(s, |fd, c| {
            drain::both(c, fd, Reason::Places);
            drop_doorbell(s, c);
            restore(fd);
        });
        s.give_waiter_up();
        gave = kernel_ctl(s.fd.load(Relaxed), EPOLL_CTL_DEL, waiter::doorbell(p), 0, 0).is_ok();
    }
    if depth > 0 {
        sets_in(s, |inner| gave |= give_way(inner, depth - 1));
    }
    gave
}

/// Whether `wanted` is this set, or inside it.
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

/// Stops managing the set for good. For io_uring, which is about to wait for it in the kernel, and for foreign use of our tags.
#[cold]
pub fn leave_to_kernel(index: u32, reason: Reason) {
    leave_in_batch(index, &Batch::begin(), reason);
}

/// As [`leave_to_kernel`], of one of several sets: their connections have a limited time together.
#[cold]
pub fn leave_in_batch(index: u32, batch: &Batch, reason: Reason) {
    let s = sets::get(index);
    s.is_kernels.store(true, Relaxed);
    drain_set_to_kernel(s, batch, reason);
    // SYNC given back: a wait that finds this finds no tag of ours in the kernel's set.
    s.is_given_back.store(true, Release);
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

/// Not in a forked child: the doorbell of a set that it has inherited is its parent's. A slot that was given back may be another
/// connection's.
pub(super) fn drop_doorbell(s: &Set, c: &Conn) {
    if let Some(p) = own_waiter(s).filter(|_| c.phase.phase().has_slot()) {
        side::remove_doorbell(&c.words().side[c.my_side()], p);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tag;
    use super::*;
    use crate::link;
    use crate::stream::stretch::tests::connected;
    use crate::stream::unrung::tests::{SLOT, attached, index_of, silent_link, with_unread};
    use crate::wait::readiness::{IN, OUT};
    use sidestep_conn::Event;
    use std::os::fd::AsRawFd;
    use std::time::{Duration, Instant};

    /// The library cannot send in place of this peer, which does nothing.
    #[test]
    fn one_wait_is_for_all_connections_in_several_sets_of_a_stopped_peer() {
        let (at, batch) = (silent_link(0x7e64), Batch::begin());
        let all = [(); 3].map(|()| sets::get(sets::create(-1).expect("a record")));
        let sockets = [0, 1, 2, 3].map(|slot| {
            let s = all[slot % all.len()];
            let (mine, theirs) = connected();
            let (fd, c) = (mine.as_raw_fd(), attached(at, slot));
            with_unread(c, 100);
            s.with(|inner| {
                if let Some(r) = inner.register(fd, (IN, 7), reg::PRESENT | reg::MANAGED) {
                    r.conn = index_of(c);
                }
            });
            arena::local(index_of(c)).fd.store(fd as u32, Relaxed);
            assert!(fdtable::set(fd, Kind::Conn(index_of(c))));
            (mine, theirs)
        });
        let began = Instant::now();
        all.iter().for_each(|s| drain_set_to_kernel(s, &batch, Reason::Exec));
        let took = began.elapsed();
        for (mine, _) in &sockets {
            fdtable::set(mine.as_raw_fd(), Kind::Other);
            assert!(!all.iter().any(|s| s.has(mine.as_raw_fd(), Reg::is_managed)));
        }
        assert!((Duration::from_secs(2)..Duration::from_secs(4)).contains(&took), "{took:?}");
        all.iter().for_each(|s| s.refs.store(0, Release));
        link::remove(at);
    }

    /// A thread has waited in the set while the stack has given the connection back, and has seen the end that there seemed to be.
    #[test]
    fn the_kernel_reports_space_of_a_connection_whose_end_was_none() {
        let epfd = fdsys::doorbell().expect("a set");
        let (s, (near, _far)) = (sets::get(sets::create(epfd).expect("a record")), connected());
        let fd = near.as_raw_fd();
        kernel_ctl(epfd, EPOLL_CTL_ADD, fd, IN | ET, tag::of(fd)).expect("a registration");
        s.with(|inner| {
            let r = inner.register(fd, (OUT | ET, 7), reg::PRESENT | reg::MANAGED).expect("a registration");
            r.ends = HUP;
        });
        demoted(fd);
        assert!(s.has(fd, Reg::is_native));
        assert_ne!(fdsys::poll_now(epfd, libc::POLLIN), 0, "nobody else asks the kernel for space");
        s.refs.store(0, Release);
        fdsys::close(epfd);
    }

    #[test]
    fn the_slot_of_a_renewed_connection_is_not_touched() {
        let at = silent_link(0x7e62);
        let (c, index) = (attached(at, SLOT), sets::create(-1).expect("a record"));
        let (s, place) = (sets::get(index), waiter::acquire().expect("a waiter"));
        s.set_waiter(place);
        side::add_doorbell(&c.words().side[0], place);
        for event in [Event::KeepForNow, Event::Demote, Event::Renew] {
            assert!(c.phase.go(event).is_some());
        }
        drop_doorbell(s, c);
        assert_eq!(side::doorbells(&c.words().side[0]), 1 << place, "it may be another connection's by now");
        s.destroy();
        s.refs.store(0, Release);
        link::remove(at);
    }
}
