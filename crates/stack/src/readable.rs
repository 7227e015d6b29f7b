//! Waiting for one descriptor.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::AsFd;
use std::time::Duration;

/// Whether the descriptor becomes readable within this time.
pub fn is_readable(descriptor: impl AsFd, within: Duration) -> bool {
    let Ok(time) = within.try_into() else { return false };
    poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&time)).is_ok_and(|n| n > 0)
}
