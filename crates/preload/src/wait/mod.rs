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
    use crate::member::tests::{has_looked, make_look_due};
    use core::sync::atomic::Ordering::Release;

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
