//! From doorbells and kernel events to the events that the program gets.

use super::takeover::hand_back;
use super::{DOORBELL, ET, EXCLUSIVE, MANAGED, ONESHOT, TAG, is_tag, kernel_ctl, kick};
use crate::fdtable::{self, Kind};
use crate::record::{flag, state};
use crate::wait::readiness::{self, ERR, HUP, OUT};
use crate::wait::sets::{self, Inner, Reg, Set, reg};
use crate::{arena, io, place};
use core::sync::atomic::Ordering::*;
use libc::{EPOLL_CTL_MOD, epoll_event};
use sidestep_sys::clock::Due;

/// When to look again at writers that were found without space; not set: there are none. Their readers may have
/// stalled, so nobody sleeps longer than that, and a set that other connections keep busy looks too.
static DUE: Due = Due::new();

/// Queues the connections that have rung for this place.
pub(super) fn queue_news(s: &Set, p: u32) {
    place::take_news(p, |index| {
        io::send::serve(index);
        let fd = arena::local(index).fd.load(Relaxed) as i32;
        s.with(|inner| inner.queue(fd));
    });
}

/// Keeps the program's own events, in place, and queues the connections that ours speak of.
pub(super) fn sort(s: &Set, out: &mut [epoll_event], n: usize) -> usize {
    let mut kept = 0;
    for i in 0..n {
        let event = out[i];
        if !is_tag(event.u64) || s.clash.load(Relaxed) {
            out[kept] = event;
            kept += 1;
        } else if event.u64 != DOORBELL {
            let fd = event.u64 as u32 as i32;
            if let Kind::Conn(index) = fdtable::get(fd) {
                if readiness::is_hint(event.events) {
                    arena::conn(index).raise(flag::HINT);
                }
                io::send::serve(index);
            }
            s.with(|inner| inner.queue(fd));
        }
    }
    kept
}

/// Reports what is ready among managed connections, from `out[from]` on. Returns how many.
pub(super) fn harvest(s: &Set, p: u32, out: &mut [epoll_event], from: usize) -> usize {
    queue_news(s, p);
    s.with(|inner| {
        let mut n = from;
        for _ in 0..inner.queued {
            if n == out.len() {
                break;
            }
            let Some(fd) = inner.pop() else { break };
            // Attached by another thread just after the kernel had reported it in its own way: once is enough.
            let data = inner.reg(fd).map_or(0, |r| r.data);
            if out[..from].iter().any(|told| told.u64 == data) {
                inner.queue(fd);
                continue;
            }
            if let Some(event) = look(s, inner, fd) {
                out[n] = event;
                n += 1;
            }
        }
        n - from
    })
    .unwrap_or(0)
}

/// One look at a queued registration; a level-triggered one that is ready stays in the queue.
fn look(s: &Set, inner: &mut Inner, fd: i32) -> Option<epoll_event> {
    let r = *inner.reg(fd)?;
    if !r.is_awaited() {
        return None;
    }
    let c = arena::conn(r.conn);
    if c.state.load(Acquire) != state::ATTACHED {
        hand_back(s, inner, fd); // another process of the family has brought it back to the kernel
        return None;
    }
    let found = readiness::events(c, fd, r.events & !(ET | ONESHOT | EXCLUSIVE));
    if c.has(flag::TX_TAKE_BACK) || r.events & OUT != 0 && found & OUT == 0 {
        if c.has(flag::TX_RING) { expect_space() } else { ask_for_out(s, fd) }
    }
    if found & (r.events | ERR | HUP) == 0 {
        return None;
    }
    if r.events & ONESHOT != 0 {
        inner.reg(fd)?.state |= reg::DISARMED;
    } else if r.events & ET == 0 {
        inner.queue(fd);
    }
    Some(epoll_event { events: found, u64: r.data })
}

/// The kernel carries and takes no more: it is to tell when it does.
#[cold]
fn ask_for_out(s: &Set, fd: i32) {
    if kernel_ctl(s.fd.load(Relaxed), EPOLL_CTL_MOD, fd, MANAGED | OUT, TAG | u64::from(fd as u32)).is_err() {
        expect_space();
    }
}

/// Some writer has something to take back that did not fit; whoever waits next looks after it.
pub fn expect_space() {
    DUE.set(io::send::STALLED_US);
}

/// Whether some writer waits for space.
pub(super) fn expects_space() -> bool {
    DUE.is_set()
}

/// Whether it is time to look at them.
#[inline]
pub(super) fn space_is_due() -> bool {
    DUE.has_come()
}

/// Has every writer that waits for space looked at again, if there may be some: in whatever sets they are.
pub(super) fn queue_writers() {
    if !DUE.take() {
        return;
    }
    fdtable::for_each(|fd, kind| {
        if let Kind::Conn(index) = kind
            && arena::conn(index).has(flag::TX_BLOCKED)
        {
            for (_, s) in sets::all().filter(|(_, s)| s.has(fd, Reg::is_awaited)) {
                s.with(|inner| inner.queue(fd));
                kick(s);
            }
        }
    });
}
