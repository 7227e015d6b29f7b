//! epoll, level-triggered, one u64 a descriptor.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

pub struct Epoll {
    fd: OwnedFd,
    events: Vec<libc::epoll_event>,
}

impl Epoll {
    /// At most `room` events are fetched by one wait.
    pub fn new(room: usize) -> Result<Self, String> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(crate::net::last("epoll_create1"));
        }
        // SAFETY: epoll_create1() has just given us this descriptor; nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Epoll { fd, events: vec![libc::epoll_event { events: 0, u64: 0 }; room] })
    }

    /// Watches for readable bytes; `key` comes back from `wait`.
    pub fn add(&self, fd: RawFd, key: u64) -> Result<(), String> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: key };
        // SAFETY: `event` is ours and whole; the kernel only reads it.
        let answer = unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) };
        if answer == 0 { Ok(()) } else { Err(crate::net::last("epoll_ctl")) }
    }

    /// Waits without limit; the keys of what is ready.
    pub fn wait(&mut self) -> Result<impl Iterator<Item = u64> + '_, String> {
        self.wait_for(None)
    }

    /// Waits for so long at most, in whole milliseconds; the keys of what is ready.
    pub fn wait_for(&mut self, time: Option<Duration>) -> Result<impl Iterator<Item = u64> + '_, String> {
        let milliseconds = time.map_or(-1, |time| i32::try_from(time.as_micros().div_ceil(1000)).unwrap_or(i32::MAX));
        loop {
            let (at, room) = (self.events.as_mut_ptr(), self.events.len() as i32);
            // SAFETY: `at` points to `room` events that live as long as `self`.
            let ready = unsafe { libc::epoll_wait(self.fd.as_raw_fd(), at, room, milliseconds) };
            if let Ok(ready) = usize::try_from(ready) {
                return Ok(self.events[..ready].iter().map(|event| event.u64));
            }
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return Err(crate::net::last("epoll_wait"));
            }
        }
    }
}
