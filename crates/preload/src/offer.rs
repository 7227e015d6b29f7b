//! Whether a connection is worth a ring, and the offer of it to the broker.

use crate::record::{Conn, flag};
use crate::{arena, attach, broker, counters, errno, fork, member, rest, settings, unseen, wait};
use core::sync::atomic::Ordering::*;
use sidestep_abi::{Reason, env};
use sidestep_conn::worth::{self, Worth};
use sidestep_conn::{Event, Phase};
use sidestep_sys::{arch, clock};

/// Counts an operation on a native connection, and offers the connection when it is worth a ring.
#[inline]
pub fn count(index: u32, c: &Conn, fd: i32) {
    let ops = c.ops.fetch_add(1, Relaxed) + 1;
    if c.phase.phase().is_offered() {
        await_pairing(c, ops);
    }
    let phase = c.phase.phase();
    if phase.may_be_offered() && !c.pause.is_on() {
        match (worth_of(c, ops), phase) {
            (Worth::Nothing, _) | (Worth::Offering, Phase::Offered { .. }) => {}
            (Worth::Asking, Phase::Offered { .. }) => errno::keep(|| press(index, c)),
            (worth, _) => errno::keep(|| offer(index, c, fd, worth == Worth::Offering)),
        }
    }
    if settings::get().pairs_in_sync && ops <= SYNC_OPS && c.phase.phase().is_offered() {
        errno::keep(member::settle);
    }
}

/// A process that only waits for an answer does not notice that the broker is gone. So it talks to the broker once every so
/// many operations.
const LOOK_OPS: u32 = 1024;

#[inline]
fn await_pairing(c: &Conn, ops: u32) {
    if ops.is_multiple_of(LOOK_OPS) {
        broker::ask_again();
    }
    if c.offered_in.load(Relaxed) != broker::era() {
        lose_offer(c);
    }
}

/// The broker that had the offer is gone: the connection may be offered to another one. An offer that is being made has era 0.
/// The exchange makes sure that only one thread takes back the offer.
#[cold]
fn lose_offer(c: &Conn) {
    let era = c.offered_in.load(Acquire);
    let is_ours = arena::me().is_some_and(|me| me == c.owner.load(Relaxed));
    if era != 0 && era != broker::era() && is_ours && c.offered_in.compare_exchange(era, 0, AcqRel, Relaxed).is_ok() {
        c.phase.go(Event::Lose);
    }
}

/// With pairing in sync: operations after which a connection whose other end is never offered waits for the broker no more.
const SYNC_OPS: u32 = 1000;

/// Coarse ticks of [`Conn::last_op`] are ticks without these low bits, so that 32 bits last for minutes.
const COARSE_BITS: u32 = 10;

fn worth_of(c: &Conn, ops: u32) -> Worth {
    let bytes = || c.early_rx.load(Relaxed) + c.early_tx.load(Relaxed);
    worth::worth(settings::get().upgrade_after, ops, || quick_ops(c, ops), bytes)
}

/// A passive offer would profit from a ring now. If the broker's socket is full, a later operation tells it.
#[cold]
fn press(index: u32, c: &Conn) {
    if broker::press(index, c) {
        c.phase.go(Event::Press);
    }
}

/// Counts the operation among those in quick succession, and returns their number.
fn quick_ops(c: &Conn, ops: u32) -> u32 {
    let ticks = arch::ticks();
    let now = (ticks >> COARSE_BITS) as u32;
    let gap = u64::from(now.wrapping_sub(c.last_op.load(Relaxed)));
    c.last_op.store(now, Relaxed);
    // A thread that has just acted on another connection was awake, however rare the messages of this one are.
    let gap = gap.min(rest::note_op(ticks) >> COARSE_BITS);
    let quick = clock::ticks_of_us(env::QUICK_US) >> COARSE_BITS;
    let count = worth::quick_ops(c.quick_ops.load(Relaxed), ops, gap, quick, rest::is_busy());
    c.quick_ops.store(count, Relaxed);
    count
}

/// Whether the library sees the program's waits for a connection in no set: in calls that block, or in poll or select.
pub fn is_waited_for(c: &Conn) -> bool {
    c.has(flag::WAITED) || !c.has(flag::NONBLOCK | flag::IMPATIENT)
}

#[cold]
fn offer(index: u32, c: &Conn, fd: i32, passive: bool) {
    fork::notice();
    if let Some(reason) = attach::stopped() {
        return c.keep_on_kernel(reason);
    }
    if counters::holds() {
        return;
    }
    let mut in_sets = None;
    wait::epoll::for_each_number(index, |n| {
        if let Some(may) = wait::epoll::may_be_offered(n) {
            in_sets = Some(may && in_sets != Some(false));
        }
    });
    if !in_sets.unwrap_or_else(|| {
        c.has(flag::WAITED) || is_waited_for(c) && !c.is_nonblocking_unseen(fd) && !unseen::has_set()
    }) {
        // Some wait of the program goes past us. Not for good: the first wait that we see may be yet to come.
        c.reason.store(Reason::NeverWaited as u32, Relaxed);
        return;
    }
    if !sidestep_sys::fd::may_be_ours() {
        return c.keep_on_kernel(Reason::FdLimit);
    }
    if arena::held_lately(index) {
        // Not for good: a server that forks for each connection closes its own descriptor in a moment.
        c.reason.store(Reason::Shared as u32, Relaxed);
        return;
    }
    if c.phase.go(Event::Offer { passive }).is_none() {
        return;
    }
    c.owner.store(arena::me().unwrap_or(0), Relaxed);
    if let Err(reason) = member::offer(index, c, fd, passive) {
        c.reason.store(reason as u32, Relaxed);
        c.phase.go(Event::Lose);
    }
}
