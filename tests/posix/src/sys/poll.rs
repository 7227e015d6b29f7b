//! poll and ppoll.

#![allow(missing_docs)] // A function with the name of a call makes this call.

use libc::{c_int, c_short, pollfd, sigset_t, timespec};

use super::errno::{Outcome, outcome};
use super::{Fd, glibc};

pub fn want(fd: Fd, events: c_short) -> pollfd {
    pollfd { fd, events, revents: 0 }
}

pub fn timespec_ms(ms: i64) -> timespec {
    timespec { tv_sec: ms / 1000, tv_nsec: ms % 1000 * 1_000_000 }
}

pub fn poll(fds: &mut [pollfd], ms: c_int) -> Outcome {
    // SAFETY: pointer and count are those of a live, exclusively borrowed slice.
    outcome(unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as u64, ms) })
}

pub fn under_poll(fds: &mut [pollfd], ms: c_int) -> Outcome {
    // SAFETY: pointer and count are those of a live, exclusively borrowed slice.
    outcome(unsafe { glibc::__poll(fds.as_mut_ptr(), fds.len() as u64, ms) })
}

pub fn poll_chk(fds: &mut [pollfd], ms: c_int) -> Outcome {
    let size = size_of_val(fds);
    // SAFETY: pointer and count are those of a live, exclusively borrowed slice.
    outcome(unsafe { glibc::__poll_chk(fds.as_mut_ptr(), fds.len() as u64, ms, size) })
}

/// A negative `ms` waits for ever.
pub fn ppoll(fds: &mut [pollfd], ms: c_int, mask: Option<&sigset_t>) -> Outcome {
    let time = timespec_ms(ms.into());
    let time = if ms < 0 { std::ptr::null() } else { &raw const time };
    let mask = mask.map_or(std::ptr::null(), |m| m as *const sigset_t);
    // SAFETY: slice, time and mask live over the call; null time and mask are allowed.
    outcome(unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as u64, time, mask) })
}

pub fn ppoll_chk(fds: &mut [pollfd], ms: c_int) -> Outcome {
    let time = timespec_ms(ms.into());
    let time = if ms < 0 { std::ptr::null() } else { &raw const time };
    let size = size_of_val(fds);
    // SAFETY: slice and time live over the call; null time and mask are allowed.
    outcome(unsafe { glibc::__ppoll_chk(fds.as_mut_ptr(), fds.len() as u64, time, std::ptr::null(), size) })
}

/// What `poll` reports for one fd within `ms` milliseconds; 0 when nothing.
pub fn events_of(fd: Fd, events: c_short, ms: c_int) -> c_short {
    let mut fds = [want(fd, events)];
    let ready = poll(&mut fds, ms).expect("poll");
    assert_eq!(ready, usize::from(fds[0].revents != 0), "poll's count and its revents must agree");
    fds[0].revents
}
