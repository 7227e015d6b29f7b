//! A number ceases to stand for what it stood for; with its last number a connection ends.

use super::adopt::{self, ORPHANS, adopt};
use super::end::{end, linger};
use crate::excuse::excuse;
use crate::fdtable::{self, Kind};
use crate::record::Conn;
use crate::uring::table;
use crate::{arena, attach, blocked, broker, counters, debts, drain, errno, pending_releases, thread, wait};
use core::sync::atomic::{AtomicU64, Ordering::*, fence};
use sidestep_abi::Reason;
use sidestep_conn::phase::Step;
use sidestep_conn::{Event, Phase};
use sidestep_ring::side;
use sidestep_sys::{arch, clock, fd as fdsys};

/// Before `fd` is closed, or replaced by dup2(): forgets it. The returned work follows the close.
#[must_use]
pub fn closing(fd: i32) -> After {
    ending(fd, Loss::Closed)
}

/// The same where `fd` stays open, and in the epoll sets that it is in.
#[must_use]
pub fn unfollow(fd: i32) -> After {
    ending(fd, Loss::StaysOpen)
}

/// The same at once, if the kernel carries the connection, or can from now on.
pub fn unfollow_native(index: u32, fd: i32) {
    let c = arena::conn(index);
    if !c.is_attached() || attach::demote(index, c) {
        unfollow(fd).finish();
    }
}

/// The same where connect(2) dissolves the connection: that concerns all its numbers, which become those of a socket that is not
/// connected.
#[must_use]
pub fn dissolving(index: u32, fd: i32) -> After {
    let mut is_copied = false;
    if !thread::in_vfork() {
        fdtable::for_each(|other, kind| {
            if kind == Kind::Conn(index) && other != fd {
                After { is_copied: true, ..unfollow(other) }.finish();
                is_copied = true;
            }
        });
    }
    After { is_copied, ..unfollow(fd) }
}

/// How a connection loses a number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loss {
    Closed,
    StaysOpen,
}

fn ending(fd: i32, loss: Loss) -> After {
    debts::settle(); // of a call that was left by a jump, on this very connection perhaps
    let kind = if thread::in_vfork() { Kind::Other } else { fdtable::close(fd) };
    if kind == Kind::Other {
        return After { fd: -1, left: Left::Alive, is_copied: false };
    }
    // SYNC waiter: we take the number away, then look for waiters; a waiter makes itself known, then looks at the number.
    fence(SeqCst);
    let left = errno::keep(|| match kind {
        Kind::Conn(index) => leave(index, fd, loss),
        Kind::Set(index) => {
            wait::epoll::closed(index, fd);
            Left::Alive
        }
        Kind::Ring(index) => {
            table::get(index).release();
            Left::Alive
        }
        _ => Left::Alive,
    });
    After { fd, left, is_copied: false }
}

/// What becomes of a connection that loses a number.
enum Left {
    /// It has others, or others have it.
    Alive,
    /// It has ended; its slot is to be given back.
    Ended(u32),
    /// It lives on under a number of our own ([`adopt`]), and is locked.
    Adopted(u32),
}

/// What is to be done once the kernel has closed the number.
pub struct After {
    fd: i32,
    left: Left,
    /// It stays open, and so does another number of its socket.
    is_copied: bool,
}

impl After {
    pub fn finish(self) {
        match self.left {
            Left::Alive => {}
            Left::Ended(index) => errno::keep(|| remove(index)),
            Left::Adopted(index) => errno::keep(|| {
                adopt::go_on(index);
                orphan_done(index); // the call may have ended meanwhile
            }),
        }
        fdtable::closed(self.fd);
        if self.is_copied {
            fdtable::set(self.fd, Kind::Copied);
        }
    }
}

/// Nothing of the connection is left.
fn remove(index: u32) {
    let c = arena::conn(index);
    settle_with_broker(index, c, c.phase.go(Event::Close));
    arena::free(index);
}

/// The connection loses a number.
fn leave(index: u32, fd: i32, loss: Loss) -> Left {
    end_orphans();
    let local = arena::local(index);
    let c = arena::conn(index);
    if local.refs.fetch_sub(1, AcqRel) > 1 {
        lose_number(index, c, fd, loss);
        return Left::Alive;
    }
    let shared = arena::held_by_others(c);
    match loss {
        // Its registrations live on with whoever holds it besides.
        Loss::Closed if shared => wait::epoll::abandon(fd),
        Loss::Closed => wait::epoll::remove(fd, c.phase.phase().is_offered()),
        Loss::StaysOpen => wait::epoll::return_to_kernel(fd),
    }
    if may_block_by_us(c.phase.phase()) && blocked::is_any(index) && adopt(index, c, fd) {
        return Left::Adopted(index);
    }
    c.holders.fetch_and(!arena::me().map_or(0, |p| 1 << p), AcqRel);
    counters::add_bytes(c.bytes());
    match c.phase.phase() {
        // A child drops what it has inherited: nothing to the owner.
        Phase::Kernel { .. } | Phase::Free | Phase::Closed => {}
        phase if phase.is_attached() && shared && arena::is_inherited(c) => return Left::Alive,
        _ if shared && arena::is_inherited(c) => {}
        // Who holds it besides goes on by kernel, and must not look at a slot that others will get.
        phase if phase.is_attached() && shared => {
            drain::to_kernel(c, fd, Reason::Shared);
            if attach::demote(index, c) {
                settle_with_broker(index, c, c.phase.go(Event::Release));
            }
            return Left::Alive;
        }
        phase if phase.is_attached() => {
            end(c, fd, loss == Loss::Closed);
            return Left::Ended(index);
        }
        Phase::Offered { .. } if !shared => linger(fd),
        _ => {}
    }
    excuse(c);
    if shared {
        leave_to_others(index, c);
    } else if settle_with_broker(index, c, c.phase.go(Event::Close)) {
        arena::free(index);
    } else {
        pending_releases::keep(index);
    }
    Left::Alive
}

/// Whether a call may be blocked on the connection that sleeps as the library makes it sleep.
fn may_block_by_us(phase: Phase) -> bool {
    phase.is_attached() || phase == Phase::Demoted
}

/// The connection goes on with other processes, by kernel. Those may offer it again.
fn leave_to_others(index: u32, c: &Conn) {
    while !arena::is_inherited(c) {
        let event = match c.phase.phase() {
            Phase::Offered { .. } => Event::Lose,
            Phase::Assigned { .. } => Event::Unfit,
            Phase::Demoted => Event::Release,
            _ => return,
        };
        if let Some(step) = c.phase.go(event) {
            if step.from.is_offered() {
                broker::withdraw(index, c);
            }
            settle_with_broker(index, c, Some(step));
            return;
        }
    }
}

/// What a transition leaves to be done. False: the broker cannot be told just now.
fn settle_with_broker(index: u32, c: &Conn, step: Option<Step>) -> bool {
    if step.is_some_and(Step::gives_slot_back) {
        attach::give_slot_back(c);
    }
    !step.is_some_and(Step::withdraws) || broker::withdraw(index, c)
}

/// A call that was blocked on the connection is over: if it was the last that kept it alive, it ends now.
#[cold]
pub fn orphan_done(index: u32) {
    let local = arena::local(index);
    if blocked::is_any(index) || local.orphan.swap(0, SeqCst) == 0 {
        return;
    }
    let _ = ORPHANS.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1));
    let own = local.fd.load(Relaxed) as i32;
    fdtable::set(own, Kind::Other);
    errno::keep(|| {
        let left = leave(index, own, Loss::Closed);
        fdsys::close(own);
        After { fd: -1, left, is_copied: false }.finish();
    });
}

/// A connection loses one of its numbers: another is the one that we use.
fn lose_number(index: u32, c: &'static Conn, fd: i32, loss: Loss) {
    let mut other = None;
    fdtable::for_each(|n, kind| {
        if kind == Kind::Conn(index) && n != fd {
            other = Some(n);
        }
    });
    let Some(n) = other else { return };
    if arena::local(index).fd.load(Relaxed) == fd as u32 {
        arena::local(index).fd.store(n as u32, Relaxed);
        if c.is_attached() {
            side::set_number(&c.words().side[c.my_side()], n as u32);
        }
    }
    if loss == Loss::StaysOpen {
        return wait::epoll::return_to_kernel(fd);
    }
    // An epoll registration under the closed number lives on in the kernel, where we cannot reach it any more.
    if wait::epoll::is_watched(fd) {
        drain::to_kernel(c, n, Reason::Dup); // what is unread must be the kernel's to tell of, too
    }
    wait::epoll::abandon(fd);
}

/// The process ends: connections that only we hold end as close(2) would end them.
pub fn end_all() {
    fdtable::for_each(|fd, kind| {
        let Kind::Conn(index) = kind else { return };
        let c = arena::conn(index);
        if c.is_attached() && arena::local(index).fd.load(Relaxed) == fd as u32 && !arena::held_by_others(c) {
            end(c, fd, true);
        }
    });
}

/// How often at most the threads that orphans are kept for are looked at.
const LOOK_US: u64 = 100_000;

/// Whoever opens or closes a connection looks whether the threads that orphans are kept for have been cancelled.
#[inline]
pub fn end_orphans() {
    if ORPHANS.load(Relaxed) > 0 {
        close_orphans();
    }
}

#[cold]
fn close_orphans() {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let (now, next) = (arch::ticks(), NEXT.load(Relaxed));
    let later = now + clock::ticks_of_us(LOOK_US);
    if now < next || NEXT.compare_exchange(next, later, Relaxed, Relaxed).is_err() {
        return;
    }
    for index in blocked::connections() {
        if arena::local(index).orphan.load(SeqCst) != 0 && !blocked::is_any(index) {
            orphan_done(index);
        }
    }
}

/// In a forked child: the threads that they are kept for do not exist here.
pub fn reset_orphans_in_child() {
    ORPHANS.store(0, Relaxed);
}
