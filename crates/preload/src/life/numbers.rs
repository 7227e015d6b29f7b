//! A descriptor ceases to stand for something. A connection ends with its last descriptor.

use super::adopt::{self, ORPHANS, adopt};
use super::end::{end, hang_up, is_fresh, linger};
use super::hasty;
use crate::excuse::excuse;
use crate::fdtable::{self, Kind};
use crate::record::{self, Conn, flag};
use crate::stream::parked;
use crate::uring::table;
use crate::{
    arena, attach, blocked, broker, counters, debts, drain, errno, fork, lineage, link, pending_releases, thread, wait,
};
use core::sync::atomic::{AtomicU64, Ordering::*, fence};
use sidestep_abi::Reason;
use sidestep_conn::phase::Step;
use sidestep_conn::{Event, Phase};
use sidestep_ring::side;
use sidestep_sys::{arch, clock, fd as fdsys};

/// Before `fd` is closed, or replaced by dup2(): ends what it stands for. The caller finishes the result after the close.
#[must_use]
pub fn closing(fd: i32) -> After {
    ending(fd, Loss::Closed)
}

/// As [`closing`], but `fd` stays open, and stays in its epoll sets.
#[must_use]
pub fn unfollow(fd: i32) -> After {
    ending(fd, Loss::StaysOpen)
}

/// As [`unfollow`], and finishes at once. No effect if the kernel does not carry the connection and cannot take it over now.
pub fn unfollow_native(index: u32, fd: i32) {
    let c = arena::conn(index);
    if !c.is_attached() || attach::demote(index, c) {
        unfollow(fd).finish();
    }
}

/// As [`unfollow_native`], and if the kernel cannot take the connection over now, as the peer does not act, no number of it is
/// followed any longer. Then the record and the slot stay in use.
pub fn unfollow_for_good(index: u32, fd: i32) {
    unfollow_native(index, fd);
    if fdtable::get(fd) != Kind::Conn(index) {
        return;
    }
    let c = arena::conn(index);
    drain::reset_undelivered(c, fd);
    fdtable::for_each(|number, kind| {
        if kind == Kind::Conn(index) {
            wait::epoll::return_to_kernel(number);
            fdtable::set(number, Kind::Other);
        }
    });
    counters::add_bytes(c.bytes(), c.has(flag::STACK));
    link::get(c.link.load(Relaxed)).set_conn(c.slot.load(Relaxed), None); // the numbers will be other files'
}

/// As [`unfollow`], where connect(2) dissolves the connection: all descriptors of the connection become those of an
/// unconnected socket.
#[must_use]
pub fn dissolving(index: u32, fd: i32) -> After {
    // The kernel keeps a negative timeout, and does not show it.
    let c = arena::conn(index);
    if [&c.rx_timeout_us, &c.tx_timeout_us].iter().any(|timeout| timeout.load(Relaxed) == record::NO_WAIT) {
        hasty::note(fd);
    }
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

/// How a connection loses a descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loss {
    Closed,
    StaysOpen,
}

fn ending(fd: i32, loss: Loss) -> After {
    debts::settle(); // an earlier call, left by a jump, may hold this very connection
    if lineage::is_marked_copy() {
        fork::notice(); // what the child leaves must not be its parent's
    }
    let kind = if thread::in_vfork() { Kind::Other } else { fdtable::close(fd) };
    if kind == Kind::Other {
        return After { fd: -1, left: Left::Alive, is_copied: false };
    }
    // SYNC waiter: we clear the table entry, then look for blocked threads; a thread enters itself, then looks at the table
    // entry.
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

/// State of a connection that has lost a descriptor.
enum Left {
    /// It has other descriptors, or other holders.
    Alive,
    /// It has ended; its slot is to be given back.
    Ended(u32),
    /// It lives on under a descriptor of the library's own ([`adopt`]), and is locked.
    Adopted(u32),
}

/// Work that must follow the kernel's close of the descriptor.
pub struct After {
    fd: i32,
    left: Left,
    /// The descriptor stays open, and the socket has another one.
    is_copied: bool,
}

impl After {
    /// Whether the descriptor stood for something.
    pub fn is_needed(&self) -> bool {
        self.fd >= 0
    }

    pub fn finish(self) {
        match self.left {
            Left::Alive => {}
            Left::Ended(index) => errno::keep(|| remove(index)),
            Left::Adopted(index) => errno::keep(|| {
                adopt::go_on(index);
                orphan_done(index); // the blocked call may have ended before the connection was marked as an orphan
            }),
        }
        fdtable::closed(self.fd);
        if self.is_copied {
            fdtable::set(self.fd, Kind::Copied);
        }
    }
}

/// Ends the record of a connection that has ended.
fn remove(index: u32) {
    let c = arena::conn(index);
    settle_with_broker(index, c, c.phase.go(Event::Close));
    arena::let_go(index);
}

/// The connection loses a descriptor.
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
        // Other processes still hold the connection, so its registrations in shared sets live on.
        Loss::Closed if shared => wait::epoll::abandon(fd),
        Loss::Closed => {
            wait::epoll::remove(fd, is_fresh(c) || c.phase.phase().is_offered());
        }
        Loss::StaysOpen => wait::epoll::return_to_kernel(fd),
    }
    if may_block_by_us(c.phase.phase()) && blocked::is_any(index) && adopt(index, c, fd) {
        return Left::Adopted(index);
    }
    counters::add_bytes(c.bytes(), c.has(flag::STACK));
    if c.phase.phase().has_slot() && !shared {
        parked::dismiss(c);
    }
    match c.phase.phase() {
        // A child that drops an inherited connection changes nothing for the owner.
        Phase::Kernel { .. } | Phase::Free | Phase::Closed => {}
        phase if phase.is_attached() && shared && arena::is_inherited(c) => return let_go(index),
        _ if shared && arena::is_inherited(c) => {}
        // The other holders continue by kernel: the slot may become another connection's, so they must not use it.
        phase if phase.is_attached() && shared => {
            drain::to_kernel(c, fd, Reason::Shared);
            if attach::demote(index, c) {
                settle_with_broker(index, c, c.phase.go(Event::Release));
            }
            return let_go(index);
        }
        phase if phase.is_attached() => {
            end(c, fd, loss == Loss::Closed);
            return Left::Ended(index);
        }
        phase if !shared && loss == Loss::Closed => end_for_the_broker(c, fd, phase),
        _ => {}
    }
    excuse(c);
    if shared {
        leave_to_others(index, c);
    } else if !settle_with_broker(index, c, c.phase.go(Event::Close)) {
        pending_releases::keep(index);
        return Left::Alive;
    }
    let_go(index)
}

/// This process has nothing to do with the connection any more: the last act here, since the record may be another connection's
/// from now on. If the others, which were still there, have left meanwhile, this ends the record.
fn let_go(index: u32) -> Left {
    arena::let_go(index);
    Left::Alive
}

/// Whether a call may be blocked on the connection in a sleep of the library's.
fn may_block_by_us(phase: Phase) -> bool {
    phase.is_attached() || matches!(phase, Phase::Demoted { .. })
}

/// Before the last close(2) here: the broker may have the socket, too.
fn end_for_the_broker(c: &Conn, fd: i32, phase: Phase) {
    if !(is_ours_alone(phase) && hang_up(c, fd)) {
        linger(c, fd);
    }
}

/// Whether an offer is under way, and the program has done nothing that needs the kernel's socket for good, so that no other program
/// has it. The broker lets the socket go before the connection is upgraded.
fn is_ours_alone(phase: Phase) -> bool {
    matches!(phase, Phase::Offered { for_good: false, .. } | Phase::Assigned { for_good: false })
}

/// The connection continues in other processes, by kernel. They may offer it again.
fn leave_to_others(index: u32, c: &Conn) {
    while !arena::is_inherited(c) {
        let event = match c.phase.phase() {
            Phase::Offered { .. } => Event::Lose,
            Phase::Assigned { .. } => Event::Unfit,
            Phase::Demoted { .. } => Event::Release,
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

/// Tells the broker what the transition `step` requires. False: the broker's socket is full.
fn settle_with_broker(index: u32, c: &Conn, step: Option<Step>) -> bool {
    if step.is_some_and(Step::gives_slot_back) {
        attach::give_slot_back(c);
    }
    !step.is_some_and(Step::withdraws) || broker::withdraw(index, c)
}

/// A blocked call is over. If it was the last one that kept the connection alive, the connection ends now.
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

/// The connection loses one of several descriptors: another one becomes the one in use.
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
        // Of an inherited connection the peer knows the parent's number.
        if c.is_attached() && !arena::is_inherited(c) {
            side::set_number(&c.words().side[c.my_side()], n as u32);
        }
    }
    if loss == Loss::StaysOpen {
        return wait::epoll::return_to_kernel(fd);
    }
    // An epoll registration under the closed descriptor lives on in the kernel, where nobody can change it any more.
    if wait::epoll::is_watched(fd) {
        drain::to_kernel(c, n, Reason::Dup); // the kernel must report unread bytes to that registration, too
    }
    wait::epoll::abandon(fd);
}

/// Whether the broker, or the stack, may have the socket of a connection of this process.
pub fn is_any_lent() -> bool {
    let mut is_any = false;
    fdtable::for_each(|_, kind| {
        is_any |= matches!(kind, Kind::Conn(index) if arena::conn(index).phase.phase().is_offered());
    });
    is_any
}

/// The process ends: ends every connection that no other process holds, as close(2) would. `hangs_up`: no code of the program runs any
/// more.
pub fn end_all(hangs_up: bool) {
    fdtable::for_each(|fd, kind| {
        let Kind::Conn(index) = kind else { return };
        let c = arena::conn(index);
        if arena::local(index).fd.load(Relaxed) != fd as u32 || arena::held_by_others(c) {
            return;
        }
        let phase = c.phase.phase();
        if phase.is_attached() {
            end(c, fd, true);
        }
        if hangs_up && is_fresh(c) && is_ours_alone(phase) {
            hang_up(c, fd);
        }
    });
}

/// Least time between two checks of the threads that keep orphans alive.
const LOOK_US: u64 = 100_000;

/// Ends orphans whose blocked threads have been cancelled. Called when a connection is opened or closed.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::unrung::tests::{SLOT, attached, index_of, silent_link};

    /// Descriptors that no test has.
    const FD: i32 = 4003;

    #[test]
    fn a_forked_child_that_closes_a_number_leaves_its_parents_number_to_the_peer() {
        let at = silent_link(0x7e68);
        let c = attached(at, SLOT);
        let (index, mine) = (index_of(c), &c.words().side[0]);
        c.owner.store(record::NOBODY, Relaxed);
        side::set_number(mine, 7);
        arena::local(index).fd.store(FD as u32, Relaxed);
        assert!(fdtable::set(FD + 1, Kind::Conn(index)));
        lose_number(index, c, FD, Loss::StaysOpen);
        fdtable::set(FD + 1, Kind::Other);
        assert_eq!(arena::local(index).fd.load(Relaxed), FD as u32 + 1);
        assert_eq!(side::number(mine), 7, "the peer cannot send in place of the parent");
        link::remove(at);
    }
}
