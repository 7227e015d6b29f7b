//! Beginning and end of a connection, and what happens to its numbers in between.

use crate::fdtable::{self, Kind};
use crate::io::send;
use crate::record::{Conn, flag, state};
use crate::{arena, attach, errno, link, member, owed, report, settings, wait};
use core::sync::atomic::{Ordering::*, fence};
use sidestep_abi::Reason;
use sidestep_sys::{fd as fdsys, tcp};

/// connect() or accept() has returned `fd`: follows it if it is TCP.
pub fn open(fd: i32) {
    let vacant = matches!(fdtable::get(fd), Kind::Other | Kind::Closing);
    if settings::active() && !crate::thread::in_vfork() && vacant {
        errno::keep(|| begin(fd));
    }
}

fn begin(fd: i32) {
    if fd as usize >= fdtable::MAX_FD || !tcp::is_tcp(fd) {
        return;
    }
    let (Some(me), Some(index)) = (arena::me(), arena::alloc()) else { return };
    let open_flags = fdsys::fcntl(fd, libc::F_GETFL, 0).unwrap_or(0) as i32;
    let mut flags = if open_flags & libc::O_NONBLOCK != 0 { flag::NONBLOCK } else { 0 };
    if open_flags & libc::O_ASYNC != 0 {
        flags |= flag::KERNEL_ONLY;
    }
    sidestep_sys::clock::calibrate();
    arena::conn(index).reset(flags, 1 << me);
    let local = arena::local(index);
    local.refs.store(1, Relaxed);
    local.fd.store(fd as u32, Relaxed);
    if local.waiters.load(Relaxed) > 0 && !sidestep_sys::process::exists(local.waiter.load(Relaxed)) {
        local.waiters.store(0, Relaxed); // a thread was cancelled while it was blocked
    }
    local.orphan.store(0, Relaxed);
    report::page().totals.seen.fetch_add(1, Relaxed);
    fdtable::set(fd, Kind::Conn(index));
}

/// `new` is now another number for what `old` stands for.
pub fn duplicated(old: i32, new: i32) {
    match fdtable::get(old) {
        Kind::Conn(index) => {
            arena::local(index).refs.fetch_add(1, AcqRel);
            fdtable::set(new, Kind::Conn(index));
        }
        Kind::Set(index) => {
            wait::sets::get(index).refs.fetch_add(1, AcqRel);
            fdtable::set(new, Kind::Set(index));
        }
        _ => {}
    }
}

/// Before `fd` is closed, or replaced by dup2(): forgets it. The returned work follows the close.
#[must_use]
pub fn closing(fd: i32) -> After {
    let kind = if crate::thread::in_vfork() { Kind::Other } else { fdtable::close(fd) };
    if kind == Kind::Other {
        return After { fd: -1, left: Left::Alive };
    }
    // SYNC waiter: we take the number away, then look for waiters; a waiter makes itself known, then looks at the number.
    fence(SeqCst);
    let left = errno::keep(|| match kind {
        Kind::Conn(index) => leave(index, fd),
        Kind::Set(index) => {
            wait::epoll::closed(index, fd);
            Left::Alive
        }
        _ => Left::Alive,
    });
    After { fd, left }
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
}

impl After {
    pub fn finish(self) {
        match self.left {
            Left::Alive => {}
            Left::Ended(index) => errno::keep(|| forget(index)),
            Left::Adopted(index) => errno::keep(|| adopted(index)),
        }
        fdtable::closed(self.fd);
    }
}

/// Nothing of the connection is left.
fn forget(index: u32) {
    let c = arena::conn(index);
    attach::give_slot_back(c);
    c.state.store(state::CLOSED, Release);
    arena::free(index);
}

/// The connection loses a number.
fn leave(index: u32, fd: i32) -> Left {
    let local = arena::local(index);
    let c = arena::conn(index);
    if local.refs.fetch_sub(1, AcqRel) > 1 {
        if local.fd.load(Relaxed) == fd as u32 {
            other_number(index, c, fd);
        }
        return Left::Alive;
    }
    let shared = arena::held_by_others(c);
    wait::epoll::forget(fd, c.state.load(Acquire) == state::OFFERED && !shared);
    if local.waiters.load(SeqCst) > 0 && (c.is_attached() || c.has(flag::DEMOTED)) && adopt(index, c, fd) {
        return Left::Adopted(index);
    }
    c.holders.fetch_and(!arena::me().map_or(0, |p| 1 << p), AcqRel);
    report::add_bytes(c.bytes());
    match c.state.load(Acquire) {
        // A child drops what it has inherited: nothing to the owner.
        state::ATTACHED if shared && crate::io::is_inherited(c) => Left::Alive,
        // Who holds it besides goes on by kernel, and must not look at a slot that others will get.
        state::ATTACHED if shared => {
            surrender(c, fd, Reason::Shared);
            if attach::demote(index, c) {
                attach::give_slot_back(c);
                c.lower(flag::DEMOTED);
            }
            Left::Alive
        }
        state::ATTACHED => {
            end(c, fd);
            Left::Ended(index)
        }
        s => {
            excuse(c);
            let mut told = true;
            if s == state::OFFERED {
                told = member::tell_withdrawn(index, c);
            } else if s == state::ATTACHING || c.has(flag::DEMOTED) {
                attach::give_slot_back(c);
            }
            if shared {
                // Who holds it besides may offer it again.
                let _ = c.state.compare_exchange(state::OFFERED, state::NATIVE, AcqRel, Relaxed);
            } else {
                c.state.store(state::CLOSED, Release);
                if told {
                    arena::free(index);
                } else {
                    owed::keep(index);
                }
            }
            Left::Alive
        }
    }
}

/// close(2) does not disturb a call that is blocked on the descriptor: the connection lives until that is over.
/// So it does here, under a number of our own. Nobody works on it until [`adopted`]: the old number may be another
/// file's from the kernel's close on.
fn adopt(index: u32, c: &Conn, fd: i32) -> bool {
    let local = arena::local(index);
    if !sidestep_sys::process::exists(local.waiter.load(Relaxed)) || c.lock_ends().is_err() {
        return false; // cancelled while it was blocked; or blocked in the call that this handler has interrupted
    }
    let Ok(own) = fdsys::fcntl(fd, libc::F_DUPFD_CLOEXEC, fdsys::LOWEST as usize) else {
        c.unlock_ends();
        return false;
    };
    fdtable::set(own as i32, Kind::Own);
    local.fd.store(own as u32, Relaxed);
    local.refs.store(1, Relaxed);
    local.orphan.store(1, SeqCst);
    true
}

/// The old number is gone: whoever waits there goes on with the new one.
fn adopted(index: u32) {
    let c = arena::conn(index);
    c.unlock_ends();
    if c.is_attached() {
        crate::place::ring_all(c.words().side[c.my_side()].bells.load(SeqCst));
    }
    orphan_done(index); // the call may have ended meanwhile
}

/// The number by which a call that began with `fd` reaches its connection now.
pub fn number(index: u32, fd: i32) -> i32 {
    let local = arena::local(index);
    if local.orphan.load(SeqCst) != 0 { local.fd.load(Relaxed) as i32 } else { fd }
}

/// A call that was blocked on the connection is over: if it was the last that kept it alive, it ends now.
#[cold]
pub fn orphan_done(index: u32) {
    let local = arena::local(index);
    if local.waiters.load(SeqCst) > 0 || local.orphan.swap(0, SeqCst) == 0 {
        return;
    }
    let own = local.fd.load(Relaxed) as i32;
    fdtable::set(own, Kind::Other);
    errno::keep(|| {
        let left = leave(index, own);
        fdsys::close(own);
        After { fd: -1, left }.finish();
    });
}

/// The number that we used for a connection is closed, others remain: uses one of those.
fn other_number(index: u32, c: &'static Conn, fd: i32) {
    let mut other = None;
    fdtable::for_each(|n, kind| {
        if kind == Kind::Conn(index) && n != fd {
            other = Some(n);
        }
    });
    let Some(n) = other else { return };
    arena::local(index).fd.store(n as u32, Relaxed);
    // An epoll registration under the closed number lives on in the kernel, where we cannot reach it any more.
    if wait::epoll::is_member(fd) {
        both_to_kernel(c, n, Reason::Dup);
        wait::epoll::restore(fd);
    }
}

/// For connections that never made it into a ring: says why.
pub fn excuse(c: &Conn) {
    if c.state.load(Acquire) >= state::ATTACHED || c.has(flag::REASONED) {
        return;
    }
    let reason = match (c.state.load(Acquire), Reason::from_code(c.reason.load(Relaxed) as u8)) {
        (state::OFFERED, _) => Reason::PeerAbsent,
        (_, Some(reason)) => reason,
        _ => Reason::Short,
    };
    c.blame(reason);
}

/// The last number of the last holder is being closed.
fn end(c: &'static Conn, fd: i32) {
    let _ = c.with_tx(|end| {
        // Before the FIN goes what the reader has not read: it may turn into somebody without our library.
        let _ = send::give_back_quietly(c, end, fd);
        c.tx_half().writer.fin.store(1, SeqCst);
    });
    let _ = c.with_rx(|rx| {
        let in_ring = rx.in_ring();
        c.rx_half().withdraw_readiness();
        rx.freeze(c.rx_half());
        c.rx_half().hint_freeze();
        // close(2) with unread data resets the connection. (What came back to the kernel before is the kernel's to judge.)
        if in_ring && rx.on_its_way() > 0 {
            tcp::reset_on_close(fd);
        }
    });
}

/// The direction that we read to the kernel for good. What the writer has not taken back yet arrives later.
pub fn rx_to_kernel(c: &Conn, reason: Reason) {
    c.raise(flag::KERNEL_ONLY);
    if !c.is_attached() {
        return;
    }
    let froze = c.with_rx(|rx| {
        let was = rx.in_ring();
        c.rx_half().withdraw_readiness();
        let _ = rx.refuse(c.rx_half());
        rx.freeze(c.rx_half());
        c.rx_half().hint_freeze();
        was
    });
    if froze.is_ok_and(|f| f) {
        attach::mark_returned(c);
        c.blame(reason);
    }
    // The writer may be waiting anywhere, or have a wait we do not know of: ring all its doorbells.
    link::get(c.link.load(Relaxed)).notify_all(c.slot.load(Relaxed) as usize);
}

/// Whether the peer may write, or begin to write, into a ring that we read.
pub fn hears_rings(c: &Conn) -> bool {
    c.is_attached()
        && (c.words().side[c.my_side()].ready.load(Acquire) != 0 || c.with_rx(|rx| rx.in_ring()).unwrap_or(false))
}

/// Both directions to the kernel for good.
pub fn both_to_kernel(c: &'static Conn, fd: i32, reason: Reason) {
    rx_to_kernel(c, reason);
    send::tx_to_kernel(c, fd, Some(reason));
}

/// Longest wait for a peer to send by kernel what we had not read, before the socket goes to somebody who
/// cannot read rings.
const HAND_OVER_US: u64 = 2_000_000;

/// As [`both_to_kernel`], and waits until the peer has taken back what was unread here.
pub fn surrender(c: &'static Conn, fd: i32, reason: Reason) {
    if !c.is_attached() {
        c.raise(flag::KERNEL_ONLY);
        c.blame(reason);
        return;
    }
    both_to_kernel(c, fd, reason);
    let expected = c.with_rx(|rx| rx.drain_target().max(rx.published(c.rx_half()))).unwrap_or(0);
    let deadline = wait::Deadline::after_ns(Some(HAND_OVER_US * 1000));
    let mut looks = 0;
    while !deadline.has_passed() {
        let (pos, by_ring) = c.with_rx(|rx| (rx.pos(), rx.ring)).unwrap_or((u64::MAX, 0));
        let here = pos.saturating_add(u64::from(tcp::queued(fd).unwrap_or(u32::MAX)));
        // What does not fit into our kernel buffer waits in the peer's: the kernel has it all the same.
        let sent = c.words().counters[1 - c.my_side()].kernel_tx.load(Relaxed).saturating_add(by_ring);
        if here.max(sent) >= expected || fdsys::poll_now(fd, libc::POLLRDHUP) & (libc::POLLHUP | libc::POLLERR) != 0 {
            return;
        }
        link::get(c.link.load(Relaxed)).notify_all(c.slot.load(Relaxed) as usize);
        if looks % 25 == 5 {
            crate::nudge::peer(c); // doorbells have had a millisecond
        }
        looks += 1;
        sidestep_sys::clock::nap_us(200);
    }
}

/// Before shutdown(2). The end itself goes by kernel, which wakes whoever waits for it.
pub fn shutting(c: &'static Conn, fd: i32, how: i32) {
    if how != libc::SHUT_RD {
        c.raise(flag::TX_SHUT);
    }
    if how != libc::SHUT_WR {
        c.raise(flag::RX_SHUT | flag::HINT);
    }
    if !c.is_attached() || how == libc::SHUT_RD {
        return;
    }
    errno::keep(|| send::tx_to_kernel(c, fd, None));
    c.tx_half().writer.fin.store(1, SeqCst);
}

/// The process ends: connections that only we hold end as close(2) would end them.
pub fn end_all() {
    fdtable::for_each(|fd, kind| {
        let Kind::Conn(index) = kind else { return };
        let c = arena::conn(index);
        if c.is_attached() && arena::local(index).fd.load(Relaxed) == fd as u32 && !arena::held_by_others(c) {
            end(c, fd);
        }
    });
}
