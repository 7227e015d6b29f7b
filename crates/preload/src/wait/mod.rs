//! Waiting: the blocking call, poll and select, epoll sets. Each sleeps in the kernel, on the sockets and on a doorbell at
//! once.

pub mod block;
pub mod epoll;
pub mod ignored;
pub mod kernel_poll;
pub mod pause;
pub mod poll;
pub mod readiness;
pub mod select;
pub mod sets;
pub mod shown;
pub mod signals;

use sidestep_sys::clock;

/// The end of a wait. The clock is read only at the first question, since most waits are over at once.
pub struct Deadline {
    /// None: no limit.
    ns: Option<u64>,
    at: core::cell::Cell<u64>,
}

impl Deadline {
    /// `ns` nanoseconds from the first question on; None: no limit.
    pub fn after_ns(ns: Option<u64>) -> Deadline {
        Deadline { ns, at: core::cell::Cell::new(0) }
    }

    /// Nanoseconds left; None: no limit.
    fn rest(&self) -> Option<u64> {
        let ns = self.ns?;
        let now = clock::monotonic_ns();
        if self.at.get() == 0 {
            self.at.set(now.saturating_add(ns).max(1));
        }
        Some(self.at.get().saturating_sub(now))
    }

    pub fn has_passed(&self) -> bool {
        self.rest() == Some(0)
    }

    /// The time left, at most `cap_us`. None: no limit.
    pub fn left(&self, cap_us: Option<u64>) -> Option<libc::timespec> {
        let ns = match (self.rest(), cap_us.map(|us| us * 1000)) {
            (Some(a), Some(b)) => a.min(b),
            (a, b) => a.or(b)?,
        };
        Some(libc::timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 })
    }
}

/// No time at all.
pub const NOW: Option<libc::timespec> = Some(libc::timespec { tv_sec: 0, tv_nsec: 0 });

pub fn is_now(left: &Option<libc::timespec>) -> bool {
    matches!(left, Some(libc::timespec { tv_sec: 0, tv_nsec: 0 }))
}

/// The argument for ppoll(2): null is no limit.
pub fn as_ptr(ts: &Option<libc::timespec>) -> *const libc::timespec {
    ts.as_ref().map_or(core::ptr::null(), |t| t)
}

/// Longest sleep without a doorbell, doubled each time: bytes come by kernel soon, unless the peer does not run.
#[derive(Default)]
pub struct Patience {
    us: u64,
}

impl Patience {
    const MOST_US: u64 = 128_000;

    /// Length of the next sleep, in microseconds.
    pub fn next_us(&mut self) -> u64 {
        self.us = (2 * self.us).clamp(UNKNOWN_BELL_US, Patience::MOST_US);
        self.us
    }
}

/// Longest sleep while the peer does not have the doorbell yet, in microseconds.
pub const UNKNOWN_BELL_US: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fdtable::{self, Kind};
    use crate::member::tests::{has_looked, make_look_due};
    use crate::stream::stretch::tests::connected;
    use crate::stream::unrung::tests::{SLOT, attached, index_of, silent_link};
    use crate::{arena, link, record};
    use core::sync::atomic::Ordering::*;
    use sidestep_ring::side;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_forked_child_that_polls_leaves_its_parent_its_doorbells() {
        let at = silent_link(0x7e66);
        let (c, (near, _far)) = (attached(at, SLOT), connected());
        let (index, fd, mine) = (index_of(c), near.as_raw_fd(), &c.words().side[0]);
        (0..64).for_each(|place| side::add_doorbell(mine, place));
        c.owner.store(record::NOBODY, Relaxed);
        arena::local(index).fd.store(fd as u32, Relaxed);
        assert!(fdtable::set(fd, Kind::Conn(index)));
        let mut list = [libc::pollfd { fd, events: 0, revents: 0 }];
        assert_eq!(poll::poll(&mut list, Some(5_000_000), core::ptr::null(), || 0), 0);
        fdtable::set(fd, Kind::Other);
        assert_eq!(side::doorbells(mine), u64::MAX, "nobody would ring the parent");
        link::remove(at);
    }

    /// Its connections may be in blocked calls of other threads.
    #[test]
    fn a_program_that_waits_for_other_things_notices_another_broker() {
        make_look_due();
        let mut list = [libc::pollfd { fd: -1, events: 0, revents: 0 }];
        assert_eq!(poll::poll(&mut list, Some(0), core::ptr::null(), || 0), 0);
        assert!(has_looked());
        make_look_due();
        let (index, mut out) = (sets::create(-1).expect("a record"), [libc::epoll_event { events: 0, u64: 0 }]);
        epoll::wait(index, &mut out, Some(0), core::ptr::null(), || 0);
        assert!(has_looked());
        sets::get(index).refs.store(0, Release);
    }
}
