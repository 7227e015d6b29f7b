//! The way of a connection from the kernel into a slot: offer, assignment, readiness.

use crate::record::{self, Conn, flag, state};
use crate::settings::{self, Threshold};
use crate::{arena, errno, link, member, report, wait};
use core::sync::atomic::{AtomicU32, Ordering::*};
use sidestep_abi::{Reason, env};
use sidestep_conn::Read;
use sidestep_ring::{counters, page, side};
use sidestep_sys::tcp::{self, Consumed};
use sidestep_sys::{arch, clock};

/// Counts an operation on a connection that is still native, and offers it once that may pay.
#[inline]
pub fn count(index: u32, c: &Conn, fd: i32) {
    let ops = c.ops.fetch_add(1, Relaxed) + 1;
    if c.state.load(Relaxed) == state::OFFERED {
        await_pairing(c, ops);
    }
    let state = c.state.load(Relaxed);
    let (is_native, is_passive) = (state == state::NATIVE, state == state::OFFERED && c.has(flag::PASSIVE));
    if (is_native || is_passive) && !c.has(flag::KERNEL_ONLY) {
        match worth(c, ops) {
            Worth::Nothing => {}
            Worth::Asking if is_passive => errno::keep(|| press(index, c)),
            Worth::Offering if is_passive => {}
            worth => errno::keep(|| offer(index, c, fd, worth == Worth::Offering)),
        }
    }
    if settings::get().pairs_in_sync && ops <= SYNC_OPS && c.state.load(Relaxed) == state::OFFERED {
        errno::keep(member::settle);
    }
}

/// Who only waits would not notice that the broker is gone: it is looked for every so many operations.
const LOOK_OPS: u32 = 1024;

#[inline]
fn await_pairing(c: &Conn, ops: u32) {
    if ops.is_multiple_of(LOOK_OPS) {
        member::look_again();
    }
    if c.offered_in.load(Relaxed) != member::era() {
        forget_offer(c);
    }
}

/// The broker that had the offer is gone: another one may be offered the connection. An offer that is just being made has no
/// broker yet. Each offer is forgotten once, whoever else saw it.
#[cold]
fn forget_offer(c: &Conn) {
    let era = c.offered_in.load(Acquire);
    let is_ours = arena::me().is_some_and(|me| me == c.owner.load(Relaxed));
    if era != 0 && era != member::era() && is_ours && c.offered_in.compare_exchange(era, 0, AcqRel, Relaxed).is_ok() {
        let _ = c.state.compare_exchange(state::OFFERED, state::NATIVE, AcqRel, Relaxed);
    }
}

/// Operations on a connection whose other end is never offered that wait for the broker under `sync` pairing.
const SYNC_OPS: u32 = 1000;

/// Of ticks, as [`Conn::last_op`] counts them: 32 bits last for minutes.
const COARSE_BITS: u32 = 10;

/// What a connection is worth, as far as this end can tell.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Worth {
    Nothing,
    /// A passive offer: this end gains nothing, the other one may.
    Offering,
    /// A ring.
    Asking,
}

fn worth(c: &Conn, ops: u32) -> Worth {
    let is_worth_it = match settings::get().upgrade_after {
        Threshold::Auto => quick_ops(c, ops) >= env::QUICK_OPS,
        Threshold::Ops(n) => ops >= n,
        Threshold::Bytes(n) => c.early_rx.load(Relaxed) + c.early_tx.load(Relaxed) >= n,
    };
    match settings::get().upgrade_after {
        _ if is_worth_it => Worth::Asking,
        Threshold::Auto if ops >= env::PASSIVE_OPS => Worth::Offering,
        _ => Worth::Nothing,
    }
}

/// This end would gain by a ring now. If the broker cannot be told, a later operation tells.
#[cold]
fn press(index: u32, c: &Conn) {
    if member::press(index, c) {
        c.lower(flag::PASSIVE);
    }
}

/// Counts the operation among those in quick succession, and says how many there are.
fn quick_ops(c: &Conn, ops: u32) -> u32 {
    let now = (arch::ticks() >> COARSE_BITS) as u32;
    let gap = now.wrapping_sub(c.last_op.load(Relaxed));
    c.last_op.store(now, Relaxed);
    let is_quick =
        ops == 1 || u64::from(gap) <= clock::ticks_of_us(env::QUICK_US) >> COARSE_BITS || wait::rest::is_busy();
    let count = if is_quick { c.quick_ops.load(Relaxed).saturating_add(1) } else { 0 };
    c.quick_ops.store(count, Relaxed);
    count
}

/// Whether the connection has seen enough operations, but not in quick succession.
pub fn is_rare(c: &Conn) -> bool {
    let is_auto = matches!(settings::get().upgrade_after, Threshold::Auto);
    is_auto && c.ops.load(Relaxed) >= env::QUICK_OPS && (c.state.load(Relaxed) < state::OFFERED || c.has(flag::PASSIVE))
}

/// Why no connection of this process may be upgraded any more; 0: they may.
static STOPPED: AtomicU32 = AtomicU32::new(0);

/// No further upgrades in this process.
pub fn stop(reason: Reason) {
    STOPPED.store(reason as u32, Relaxed);
}

#[cold]
fn offer(index: u32, c: &Conn, fd: i32, passive: bool) {
    crate::fork::notice();
    if let Some(reason) = Reason::from_code(STOPPED.load(Relaxed) as u8) {
        return stay(c, reason);
    }
    if member::holds() {
        return;
    }
    let mut in_sets = None;
    wait::epoll::for_each_number(index, |n| {
        if let Some(may) = wait::epoll::may_be_offered(n) {
            in_sets = Some(may && in_sets != Some(false));
        }
    });
    let is_waited_for = in_sets.unwrap_or(!c.has(flag::NONBLOCK) || c.has(flag::WAITED));
    if !is_waited_for {
        // Somebody polls it where we cannot see. Not final: the first wait may be yet to come.
        c.reason.store(Reason::NeverWaited as u32, Relaxed);
        return;
    }
    if !sidestep_sys::fd::may_be_ours() {
        return stay(c, Reason::FdLimit);
    }
    if arena::held_by_others(c) {
        // Not final: a server that forks for each connection closes its own copy in a moment.
        c.reason.store(Reason::Shared as u32, Relaxed);
        return;
    }
    if c.state.compare_exchange(state::NATIVE, state::OFFERED, AcqRel, Relaxed).is_err() {
        return;
    }
    c.owner.store(arena::me().unwrap_or(0), Relaxed);
    if passive {
        c.raise(flag::PASSIVE);
    } else {
        c.lower(flag::PASSIVE);
    }
    if let Err(reason) = member::offer(index, c, fd, passive) {
        c.reason.store(reason as u32, Relaxed);
        c.state.store(state::NATIVE, Release);
    }
}

/// On the kernel for good.
pub fn stay(c: &Conn, reason: Reason) {
    c.raise(flag::KERNEL_ONLY);
    c.blame(reason);
}

/// The broker has paired the offer: this is our slot.
pub fn assign(index: u32, c: &'static Conn, link_index: u32, slot: u32) {
    let l = link::get(link_index);
    if arena::held_by_others(c) {
        // A child was born while the offer was under way, perhaps before the link was mapped: it could not follow.
        c.reason.store(Reason::Shared as u32, Relaxed);
        c.state.store(state::NATIVE, Release);
        return l.release(slot);
    }
    let side = l.my_side();
    let (tx_ring, size) = l.ring(slot as usize, side);
    let (rx_ring, _) = l.ring(slot as usize, 1 - side);
    c.map(l.slot(slot as usize), tx_ring, rx_ring, size);
    c.link.store(link_index, Relaxed);
    c.slot.store(slot % sidestep_abi::link::SLOTS as u32, Relaxed);
    c.side.store(side as u32, Relaxed);
    l.set_conn(slot, Some(index));
    c.state.store(state::ATTACHING, SeqCst);
    advance(index, c);
}

/// Takes the connection as far as it can go now: into the state machine once no thread is inside a native
/// call, and to readiness once the peer can wake all our waits.
#[inline]
pub fn advance(index: u32, c: &'static Conn) {
    if c.state.load(SeqCst) == state::ATTACHING && c.gate.is_empty() {
        errno::keep(|| enter(index, c));
    }
    if c.has(flag::NOT_READY) && c.is_attached() {
        errno::keep(|| get_ready(index, c));
    }
}

/// From native counting to the state machine, if the kernel counts as we do.
#[cold]
fn enter(index: u32, c: &'static Conn) {
    let fd = arena::local(index).fd.load(Relaxed) as i32;
    let entered = c.with_rx(|rx| {
        c.with_tx(|end| {
            // Again under the locks: another thread may have been faster, or may have entered a native call.
            if c.state.load(SeqCst) != state::ATTACHING || !c.gate.is_empty() {
                return Ok(false);
            }
            if tcp::option::<i32>(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT).is_ok_and(|mark| mark > 1) {
                return Err(Reason::SocketOption); // set before we knew the number, or by a listener
            }
            let (read, written) = (c.early_rx.load(Relaxed), c.early_tx.load(Relaxed));
            match (tcp::consumed(fd), tcp::written(fd)) {
                (Consumed::Moving, _) => return Ok(false),
                (Consumed::Bytes(r), Some(w)) if r == read && w == written => {}
                (Consumed::Bytes(_), Some(_)) => return Err(Reason::CountMismatch),
                _ => return Err(Reason::PeerClosing),
            }
            *rx = sidestep_conn::Rx::native(read);
            end.tx = sidestep_conn::Tx::native(written);
            end.stall = sidestep_conn::Stall::default();
            end.ended_seen = 0;
            for (timeout, name) in [(&c.rx_timeout_us, libc::SO_RCVTIMEO), (&c.tx_timeout_us, libc::SO_SNDTIMEO)] {
                if timeout.load(Relaxed) != record::NO_WAIT {
                    timeout.store(tcp::timeout_us(fd, name), Relaxed);
                }
            }
            side::set_number(&c.words().side[c.my_side()], fd as u32);
            let counters = &c.words().counters[c.my_side()];
            counters::set_kernel_rx(counters, read);
            counters::set_kernel_tx(counters, written);
            c.raise(flag::NOT_READY);
            c.state.store(state::ATTACHED, SeqCst);
            Ok(true)
        })
    });
    match entered {
        Ok(Ok(Ok(true))) => {
            crate::handlers::install_all();
            wait::epoll::for_each_number(index, |n| {
                if let Err(reason) = wait::epoll::manage(index, c, n, false) {
                    stay(c, reason);
                }
            });
        }
        Ok(Ok(Err(reason))) => refuse(c, reason),
        _ => {}
    }
}

/// Not fit for a ring after all: gives the slot back.
fn refuse(c: &Conn, reason: Reason) {
    if c.state.compare_exchange(state::ATTACHING, state::NATIVE, AcqRel, Relaxed).is_ok() {
        stay(c, reason);
        give_slot_back(c);
    }
}

pub fn give_slot_back(c: &Conn) {
    let index = c.link.load(Relaxed);
    let (l, slot) = (link::get(index), c.slot.load(Relaxed));
    l.set_conn(slot, None);
    l.release(slot);
    member::tidy(index);
}

/// Calls on a connection that some set still watches in the kernel's way, before we look closer at it.
const UNMANAGED_TRIES: u32 = 16;

/// Declares to the peer that we read rings, once it can ring every place where we might wait.
#[cold]
fn get_ready(index: u32, c: &Conn) {
    let l = link::get(c.link.load(Relaxed));
    let mut bells = side::doorbells(&c.words().side[c.my_side()]);
    while bells != 0 {
        if !l.knows(bells.trailing_zeros()) {
            return member::settle(); // a doorbell may be on its way to the peer
        }
        bells &= bells - 1;
    }
    let mut has_unmanaged = false;
    wait::epoll::for_each_number(index, |n| has_unmanaged |= wait::epoll::has_unmanaged(n));
    if has_unmanaged {
        // Its next wait may arm it. If it has not for long, perhaps it never will.
        let tries = c.ops.fetch_add(1, Relaxed);
        if tries >= UNMANAGED_TRIES && tries.is_power_of_two() {
            wait::epoll::for_each_number(index, |n| wait::epoll::manage_fired(c, index, n));
        }
        return;
    }
    // Who gives the direction up for good says so first, and then withdraws readiness under this lock.
    let _ = c.with_rx(|_| {
        c.lower(flag::NOT_READY);
        if !c.has(flag::KERNEL_ONLY) {
            c.rx_half().set_ready();
        }
    });
}

/// A connection that is on the kernel for good and has nothing left in a ring is native again. False: it is not so
/// far yet.
#[cold]
pub fn demote(index: u32, c: &Conn) -> bool {
    let fd = arena::local(index).fd.load(Relaxed) as i32;
    let done = c.with_rx(|rx| {
        c.with_tx(|end| {
            let half = c.rx_half();
            if !half.is_unwanted() {
                half.withdraw_readiness();
                half.hint_freeze();
            }
            let all_here = rx.on_its_way() == 0 || u64::from(tcp::queued(fd).unwrap_or(0)) >= rx.on_its_way();
            // No stretch: neither one that we are in, nor one that has been announced, nor copies of one.
            let by_kernel = rx.next(half) == Ok(Read::Kernel(u64::MAX)) && !end.tx.in_ring() && !end.tx.has_unsent();
            if !by_kernel || !all_here || !c.is_attached() {
                return false;
            }
            c.early_rx.store(rx.kernel, Relaxed);
            c.early_tx.store(end.tx.kernel(), Relaxed);
            c.raise(flag::DEMOTED);
            c.state.store(state::NATIVE, SeqCst);
            true
        })
    });
    let done = matches!(done, Ok(Ok(true)));
    if done {
        wait::epoll::for_each_number(index, wait::epoll::demoted);
    }
    done
}

/// Counts the connection as upgraded, once.
#[inline]
pub fn mark_upgraded(c: &Conn) {
    if !c.has(flag::UPGRADED) && c.raise(flag::UPGRADED) {
        page::count_upgraded(report::page());
    }
}

/// Counts the connection as returned, once.
pub fn mark_returned(c: &Conn) {
    if !c.has(flag::RETURNED) && c.raise(flag::RETURNED) {
        page::count_returned(report::page());
    }
}
