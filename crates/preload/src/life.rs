//! Beginning and end of a connection, and what happens to its numbers in between.

use crate::fdtable::{self, Kind};
use crate::io::{deputy, recv, send};
use crate::record::{Conn, TxEnd, flag, state};
use crate::wait::blocked;
use crate::{arena, attach, debts, errno, link, member, owed, report, settings, uring, wait};
use core::sync::atomic::{Ordering::*, fence};
use sidestep_abi::Reason;
use sidestep_conn::{PeerViolation, Rx};
use sidestep_ring::{counters, page, side};
use sidestep_sys::{fd as fdsys, tcp};

/// accept() has returned `fd`: follows it if it is TCP.
pub fn accepted(fd: i32) {
    open(fd, false);
}

/// connect() has begun on `fd`: the same, unless it is followed already.
pub fn connecting(fd: i32) {
    open(fd, fdtable::get(fd) == Kind::Copied);
}

/// `is_copied`: the connection has another number, which we do not follow.
fn open(fd: i32, is_copied: bool) {
    let vacant = matches!(fdtable::get(fd), Kind::Other | Kind::Copied | Kind::Closing);
    if settings::active() && !crate::thread::in_vfork() && vacant {
        errno::keep(|| {
            begin(fd);
            if let Kind::Conn(index) = fdtable::get(fd)
                && is_copied
            {
                surrender(arena::conn(index), fd, Reason::Dup);
            }
        });
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
    blocked::look_after_orphans();
    arena::conn(index).reset(flags, 1 << me);
    let local = arena::local(index);
    local.refs.store(1, Relaxed);
    local.fd.store(fd as u32, Relaxed);
    blocked::is_any(index); // threads may have been cancelled while they were blocked on the last connection here
    local.orphan.store(0, Relaxed);
    page::count_seen(report::page());
    fdtable::set(fd, Kind::Conn(index));
}

/// `new` is now another number for what `old` stands for.
pub fn duplicated(old: i32, new: i32) {
    match fdtable::get(old) {
        Kind::Conn(index) => {
            if fdtable::set(new, Kind::Conn(index)) {
                arena::local(index).refs.fetch_add(1, AcqRel);
            } else {
                errno::keep(|| surrender(arena::conn(index), old, Reason::Dup)); // a number that nobody can follow
            }
        }
        Kind::Set(index) => {
            wait::sets::get(index).refs.fetch_add(1, AcqRel);
            fdtable::set(new, Kind::Set(index));
        }
        Kind::Ring(index) => {
            uring::duplicated(index);
            fdtable::set(new, Kind::Ring(index));
        }
        Kind::Other | Kind::Copied if settings::active() && errno::keep(|| tcp::is_unconnected(old)) => {
            fdtable::set(old, Kind::Copied);
            fdtable::set(new, Kind::Copied);
        }
        _ => {}
    }
}

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
    if !crate::thread::in_vfork() {
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
    let kind = if crate::thread::in_vfork() { Kind::Other } else { fdtable::close(fd) };
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
            uring::closed(index);
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
            Left::Ended(index) => errno::keep(|| forget(index)),
            Left::Adopted(index) => errno::keep(|| adopted(index)),
        }
        fdtable::closed(self.fd);
        if self.is_copied {
            fdtable::set(self.fd, Kind::Copied);
        }
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
fn leave(index: u32, fd: i32, loss: Loss) -> Left {
    blocked::look_after_orphans();
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
        Loss::Closed => wait::epoll::forget(fd, c.state.load(Acquire) == state::OFFERED),
        Loss::StaysOpen => wait::epoll::return_to_kernel(fd),
    }
    if (c.is_attached() || c.has(flag::DEMOTED)) && blocked::is_any(index) && adopt(index, c, fd) {
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
            end(c, fd, loss);
            Left::Ended(index)
        }
        s => {
            excuse(c);
            let mut told = true;
            if s == state::OFFERED {
                if !shared {
                    linger(fd);
                }
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
    if c.lock_ends().is_err() {
        return false; // this handler has interrupted the call that is blocked
    }
    let Ok(own) = fdsys::fcntl(fd, libc::F_DUPFD_CLOEXEC, fdsys::LOWEST as usize) else {
        c.unlock_ends();
        return false;
    };
    fdtable::set(own as i32, Kind::Own);
    local.fd.store(own as u32, Relaxed);
    if c.is_attached() {
        side::set_number(&c.words().side[c.my_side()], own as u32);
    }
    local.refs.store(1, Relaxed);
    local.orphan.store(1, SeqCst);
    blocked::ORPHANS.fetch_add(1, Relaxed);
    true
}

/// The old number is gone: whoever waits there goes on with the new one.
fn adopted(index: u32) {
    let c = arena::conn(index);
    c.unlock_ends();
    if c.is_attached() {
        crate::place::ring_all(side::doorbells(&c.words().side[c.my_side()]));
    }
    orphan_done(index); // the call may have ended meanwhile
}

/// The number by which a call that began with `fd` reaches its connection now.
pub fn number(index: u32, fd: i32) -> i32 {
    let local = arena::local(index);
    // It may be orphaned, or go on under another number that it had all the time.
    let moved = local.orphan.load(SeqCst) != 0 || fdtable::get(fd) != Kind::Conn(index);
    if moved { local.fd.load(Relaxed) as i32 } else { fd }
}

/// A call that was blocked on the connection is over: if it was the last that kept it alive, it ends now.
#[cold]
pub fn orphan_done(index: u32) {
    let local = arena::local(index);
    if blocked::is_any(index) || local.orphan.swap(0, SeqCst) == 0 {
        return;
    }
    let _ = blocked::ORPHANS.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1));
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
        surrender(c, n, Reason::Dup); // what is unread must be the kernel's to tell of, too
    }
    wait::epoll::abandon(fd);
}

/// For connections that never made it into a ring: says why.
pub fn excuse(c: &Conn) {
    if c.state.load(Acquire) >= state::ATTACHED || c.has(flag::REASONED) {
        return;
    }
    let is_offered = c.state.load(Acquire) == state::OFFERED;
    let reason = match Reason::from_code(c.reason.load(Relaxed) as u8) {
        _ if is_offered && !c.has(flag::PASSIVE) => Reason::PeerAbsent,
        Some(reason) if !is_offered => reason,
        _ if attach::is_rare(c) => Reason::Rare,
        _ => Reason::Short,
    };
    c.blame(reason);
}

/// While an offer is under way the broker holds the socket too, so that our close is not the last, and would not wait as
/// the program has asked for (SO_LINGER). A reset is sent by the broker's close.
fn linger(fd: i32) {
    let Some(seconds) = tcp::linger(fd).filter(|seconds| *seconds > 0) else { return };
    let deadline = wait::Deadline::after_ns(Some(u64::from(seconds) * 1_000_000_000));
    while !deadline.has_passed() && tcp::unacknowledged(fd).is_ok_and(|n| n > 0) {
        sidestep_sys::clock::nap_us(LINGER_LOOK_US);
    }
}

const LINGER_LOOK_US: u64 = 1000;

/// The last number of the last holder is being closed.
fn end(c: &'static Conn, fd: i32, loss: Loss) {
    let has_unread = |end: &mut TxEnd| end.tx.look(c.tx_half()).is_ok() && end.tx.unread() > 0;
    if tcp::linger(fd) == Some(0) && c.with_tx(has_unread).unwrap_or(false) {
        tcp::send_at_once(fd); // what the kernel still held back would be lost with the reset
    }
    // Before the FIN goes what the reader has not read: it may turn into somebody without our library.
    send::tx_to_kernel(c, fd, None);
    c.tx_half().set_fin();
    let _ = c.with_rx(|rx| {
        discard_all_copies(c, rx, fd);
        let in_ring = rx.in_ring();
        let _ = leave_ring(c, rx);
        // close(2) with unread data resets the connection. (What came back to the kernel before is the kernel's to judge.)
        if in_ring && rx.on_its_way() > 0 && loss == Loss::Closed {
            tcp::reset_on_close(fd);
        }
    });
}

/// Copies in the kernel's queue, and those on their way there, are no unread data: the kernel must not answer them with a
/// reset. A writer that sends some is waited for, but not for long.
fn discard_all_copies(c: &Conn, rx: &mut Rx, fd: i32) {
    for _ in 0..COPY_LOOKS {
        let looked = recv::discard_copies(c, rx, fd);
        if looked.is_err() || !rx.awaits_copies(c.rx_half()) {
            return;
        }
        sidestep_sys::clock::nap_us(COPY_LOOK_US);
    }
}

const COPY_LOOKS: u32 = 40;
const COPY_LOOK_US: u64 = 50;

/// Leaves the ring that we read, where we are: its writer sends by kernel what we have not read.
fn leave_ring(c: &Conn, rx: &mut Rx) -> Result<(), PeerViolation> {
    rx.leave_ring(c.rx_half())
}

/// The direction that we read to the kernel for good, for somebody who reads natively from here on. What the writer has not
/// sent by kernel yet arrives later.
pub fn rx_to_kernel(c: &Conn, reason: Reason) {
    give_rx_up(c, reason, |rx| leave_ring(c, rx));
}

/// The same as soon as what is in the ring has been read: nothing that is readable now becomes unreadable for a moment.
fn rx_to_kernel_once_read(c: &Conn, reason: Reason) {
    give_rx_up(c, reason, |_| {
        c.rx_half().withdraw_readiness();
        c.rx_half().hint_freeze();
        Ok(())
    });
}

fn give_rx_up(c: &Conn, reason: Reason, leave: impl FnOnce(&mut Rx) -> Result<(), PeerViolation>) {
    c.raise(flag::KERNEL_ONLY);
    if !c.is_attached() {
        return;
    }
    let was_in_ring = c.with_rx(|rx| {
        let was = rx.in_ring();
        let _ = leave(rx);
        was
    });
    if was_in_ring.is_ok_and(|was| was) {
        attach::mark_returned(c);
    }
    c.blame(reason);
    // The writer may be waiting anywhere, or have a wait we do not know of: ring all its doorbells.
    link::get(c.link.load(Relaxed)).notify_all(c.slot.load(Relaxed) as usize);
}

/// Whether the peer may write, or begin to write, into a ring that we read.
pub fn hears_rings(c: &Conn) -> bool {
    c.is_attached() && (!c.rx_half().is_unwanted() || c.with_rx(|rx| rx.in_ring()).unwrap_or(false))
}

/// Both directions to the kernel for good, for somebody who reads natively from here on.
pub fn both_to_kernel(c: &'static Conn, fd: i32, reason: Reason) {
    rx_to_kernel(c, reason);
    send::tx_to_kernel(c, fd, Some(reason));
}

/// Both directions to the kernel for good, while all reading goes on through us.
pub fn both_to_kernel_once_read(c: &'static Conn, fd: i32, reason: Reason) {
    rx_to_kernel_once_read(c, reason);
    send::tx_to_kernel(c, fd, Some(reason));
}

/// Longest wait for a peer to send by kernel what we had not read, before the socket goes to somebody who
/// cannot read rings.
const HAND_OVER_US: u64 = 2_000_000;

/// As [`both_to_kernel`], and waits until the kernel has what was unread here, and nothing twice.
pub fn surrender(c: &'static Conn, fd: i32, reason: Reason) {
    if !c.is_attached() {
        c.raise(flag::KERNEL_ONLY);
        c.blame(reason);
        return;
    }
    both_to_kernel(c, fd, reason);
    let expected = c.with_rx(|rx| rx.drain_target().max(rx.published(c.rx_half()))).unwrap_or(0);
    let deadline = wait::Deadline::after_ns(Some(HAND_OVER_US * 1000));
    let handed_over = || {
        let look = |rx: &mut Rx| {
            let is_done = is_handed_over(c, rx, fd, expected);
            if is_done {
                rx.hand_over();
            }
            is_done
        };
        c.with_rx(look).unwrap_or(true)
    };
    if handed_over() {
        return;
    }
    serve_all(); // the writer may be this very thread
    let mut looks = 0;
    while !handed_over() && !deadline.has_passed() {
        link::get(c.link.load(Relaxed)).notify_all(c.slot.load(Relaxed) as usize);
        looks += 1;
        if looks % DEPUTY_LOOKS == 0 {
            let _ = c.with_rx(|rx| deputy::send_for_writer(c, rx, fd));
        }
        sidestep_sys::clock::nap_us(200);
    }
}

/// How long a peer may take to send by kernel what it has put into a ring, until somebody else does.
const SUSPEND_US: u64 = 20_000;

/// Both directions to the kernel until [`resume`], for a program that perhaps waits where no doorbell is heard. What can be
/// read is in the kernel, too, when this returns.
pub fn suspend(c: &'static Conn, fd: i32) {
    side::set_away(&c.words().side[c.my_side()]);
    hint_both(c);
    serve_all(); // the writer may be this very thread
    let deadline = wait::Deadline::after_ns(Some(SUSPEND_US * 1000));
    let is_open =
        || c.with_rx(|rx| rx.published(c.rx_half()) > rx.pos() && !rx.is_last_of_ring(c.rx_half())).unwrap_or(false);
    while is_open() {
        if deadline.has_passed() {
            return surrender(c, fd, Reason::NeverWaited);
        }
        sidestep_sys::clock::nap_us(200);
    }
}

/// Whether [`suspend`] was called, and nothing since.
pub fn is_suspended(c: &Conn) -> bool {
    side::is_away(&c.words().side[c.my_side()])
}

/// The program waits where doorbells are heard.
pub fn resume(c: &Conn) {
    if is_suspended(c) && side::clear_away(&c.words().side[c.my_side()]) {
        let _ = c.reason.compare_exchange(Reason::NeverWaited as u32, 0, Relaxed, Relaxed);
        hint_both(c);
    }
}

/// Both writers are to look at what has changed.
fn hint_both(c: &Conn) {
    c.rx_half().hint_freeze();
    c.tx_half().hint_freeze();
    link::get(c.link.load(Relaxed)).notify_all(c.slot.load(Relaxed) as usize);
}

/// After so many looks, a millisecond, doorbells have had their time.
const DEPUTY_LOOKS: u32 = 5;

/// Looks at what every connection of this process has to do for its peer.
fn serve_all() {
    fdtable::for_each(|_, kind| {
        if let Kind::Conn(index) = kind {
            send::serve(index);
        }
    });
}

/// Whether the kernel has all bytes up to `expected` that were not read here, and no copies of what was.
fn is_handed_over(c: &Conn, rx: &mut Rx, fd: i32, expected: u64) -> bool {
    while recv::discard_copies(c, rx, fd).unwrap_or(false) {}
    if fdsys::poll_now(fd, libc::POLLRDHUP) & (libc::POLLHUP | libc::POLLERR) != 0 {
        return true;
    }
    let here = rx.pos().saturating_add(u64::from(tcp::queued(fd).unwrap_or(u32::MAX)));
    // What does not fit into our kernel buffer waits in the peer's: the kernel has it all the same.
    let sent = counters::load(&c.words().counters[1 - c.my_side()]).kernel_tx.saturating_add(rx.ring);
    !rx.expects_copies() && here.max(sent) >= expected
}

/// Before shutdown(2). The end itself goes by kernel, which wakes whoever waits for it.
pub fn shutting(c: &'static Conn, fd: i32, how: i32) {
    if how != libc::SHUT_RD {
        c.raise(flag::TX_SHUT);
    }
    if how != libc::SHUT_WR {
        c.raise(flag::RX_SHUT | flag::HINT);
    }
    if !c.is_attached() {
        return;
    }
    if how != libc::SHUT_RD {
        errno::keep(|| send::tx_to_kernel(c, fd, None));
    }
    if c.has(flag::TX_SHUT) && c.has(flag::RX_SHUT) {
        let _ = c.with_rx(|rx| enter_last_ring(c, rx, fd));
    }
    if how != libc::SHUT_RD {
        c.tx_half().set_fin();
    }
}

/// What the kernel brought from now on would be answered with a reset. So no copies may come: a ring that has begun is
/// entered, whatever is unread before it, and no further one begins.
fn enter_last_ring(c: &Conn, rx: &mut Rx, fd: i32) {
    let half = c.rx_half();
    half.withdraw_readiness();
    while recv::discard_copies(c, rx, fd).unwrap_or(false) {}
    let _ = rx.enter_ahead(half);
}

/// The process ends: connections that only we hold end as close(2) would end them.
pub fn end_all() {
    fdtable::for_each(|fd, kind| {
        let Kind::Conn(index) = kind else { return };
        let c = arena::conn(index);
        if c.is_attached() && arena::local(index).fd.load(Relaxed) == fd as u32 && !arena::held_by_others(c) {
            end(c, fd, Loss::Closed);
        }
    });
}
