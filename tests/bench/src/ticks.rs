//! A clock that ticks at a constant rate, whatever its reader does: a tick that is read late was due all the same.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::time::{Duration, Instant};

use crate::net;

pub struct Ticks {
    timer: File,
    begin: Instant,
    period: Duration,
    seen: u32,
}

impl Ticks {
    /// The first tick comes one period from now.
    pub fn every(period: Duration) -> Result<Ticks, String> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK) };
        if fd < 0 {
            return Err(net::last("timerfd_create"));
        }
        // SAFETY: timerfd_create() has just given us this descriptor; nobody else owns it.
        let timer = unsafe { File::from_raw_fd(fd) };
        let each = libc::timespec { tv_sec: period.as_secs() as i64, tv_nsec: i64::from(period.subsec_nanos()) };
        let wanted = libc::itimerspec { it_interval: each, it_value: each };
        let begin = Instant::now();
        // SAFETY: `wanted` is whole and lives on our stack; the old value is not asked for.
        let answer = unsafe { libc::timerfd_settime(fd, 0, &raw const wanted, std::ptr::null_mut()) };
        if answer == 0 { Ok(Ticks { timer, begin, period, seen: 0 }) } else { Err(net::last("timerfd_settime")) }
    }

    pub fn fd(&self) -> RawFd {
        self.timer.as_raw_fd()
    }

    /// When the ticks since the last call were due.
    pub fn due(&mut self) -> Result<impl Iterator<Item = Instant> + use<>, String> {
        let mut count = [0u8; 8];
        let new = match self.timer.read_exact(&mut count) {
            Ok(()) => u64::from_ne_bytes(count) as u32,
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => 0,
            Err(e) => return Err(format!("timerfd: {e}")),
        };
        let (begin, period, first) = (self.begin, self.period, self.seen);
        self.seen += new;
        Ok((first..first + new).map(move |number| begin + period * (number + 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_that_are_read_late_were_due_in_time() {
        let period = Duration::from_millis(2);
        let mut ticks = Ticks::every(period).unwrap();
        let mut all: Vec<Instant> = Vec::new();
        while all.len() < 5 {
            all.extend(ticks.due().unwrap());
        }
        assert!(all.windows(2).all(|two| two[1] - two[0] == period));
        assert!(all.last().unwrap() <= &Instant::now());
    }
}
