//! An epoll set.

use libc::{c_int, epoll_event, sigset_t};

use super::errno::{Outcome, outcome};
use super::poll::timespec_ms;
use super::{Fd, glibc};

pub const IN: u32 = libc::EPOLLIN as u32;
pub const OUT: u32 = libc::EPOLLOUT as u32;
pub const PRI: u32 = libc::EPOLLPRI as u32;
pub const RDHUP: u32 = libc::EPOLLRDHUP as u32;
pub const HUP: u32 = libc::EPOLLHUP as u32;
pub const ERR: u32 = libc::EPOLLERR as u32;
pub const ET: u32 = libc::EPOLLET as u32;
pub const ONESHOT: u32 = libc::EPOLLONESHOT as u32;
pub const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;

/// An event as (mask, data).
pub type Event = (u32, u64);

#[derive(Clone, Copy)]
pub struct Epoll {
    pub fd: Fd,
}

impl Default for Epoll {
    fn default() -> Epoll {
        Epoll::new()
    }
}

impl Epoll {
    pub fn new() -> Epoll {
        // SAFETY: no pointers.
        let ret = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        Epoll { fd: outcome(ret).expect("epoll_create1") as Fd }
    }

    /// By the older call, whose argument has no effect.
    pub fn with_size(size: c_int) -> Epoll {
        // SAFETY: no pointers.
        Epoll { fd: outcome(unsafe { libc::epoll_create(size) }).expect("epoll_create") as Fd }
    }

    pub fn control(self, op: c_int, fd: Fd, mask: u32, data: u64) -> Outcome {
        let mut event = epoll_event { events: mask, u64: data };
        // SAFETY: the event is a live value.
        outcome(unsafe { libc::epoll_ctl(self.fd, op, fd, &mut event) })
    }

    /// Adds with the fd's number as data.
    pub fn add(self, fd: Fd, mask: u32) {
        self.control(libc::EPOLL_CTL_ADD, fd, mask, fd as u64).expect("EPOLL_CTL_ADD");
    }

    pub fn modify(self, fd: Fd, mask: u32) {
        self.control(libc::EPOLL_CTL_MOD, fd, mask, fd as u64).expect("EPOLL_CTL_MOD");
    }

    pub fn delete(self, fd: Fd) {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, 0).expect("EPOLL_CTL_DEL");
    }

    fn collect(
        room: usize,
        wait: impl FnOnce(*mut epoll_event, c_int) -> c_int,
    ) -> Result<Vec<Event>, super::errno::Errno> {
        let mut events = vec![epoll_event { events: 0, u64: 0 }; room];
        let n = outcome(wait(events.as_mut_ptr(), room as c_int))?;
        assert!(n <= room, "epoll_wait gave {n} events though there was room for {room}");
        Ok(events[..n].iter().map(|e| (e.events, e.u64)).collect())
    }

    pub fn try_wait(self, room: usize, ms: c_int) -> Result<Vec<Event>, super::errno::Errno> {
        // SAFETY: the pointer has room for that many events.
        Epoll::collect(room, |p, n| unsafe { libc::epoll_wait(self.fd, p, n, ms) })
    }

    pub fn wait(self, ms: c_int) -> Vec<Event> {
        self.try_wait(64, ms).expect("epoll_wait")
    }

    pub fn pwait(self, ms: c_int, mask: &sigset_t) -> Result<Vec<Event>, super::errno::Errno> {
        // SAFETY: the pointer has room for that many events; the mask is a live value.
        Epoll::collect(64, |p, n| unsafe { libc::epoll_pwait(self.fd, p, n, ms, mask) })
    }

    pub fn pwait2(self, ms: c_int, mask: Option<&sigset_t>) -> Result<Vec<Event>, super::errno::Errno> {
        let time = timespec_ms(ms.into());
        let time = if ms < 0 { std::ptr::null() } else { &raw const time };
        let mask = mask.map_or(std::ptr::null(), |m| m as *const sigset_t);
        // SAFETY: the pointer has room for that many events; time and mask live, null is allowed.
        Epoll::collect(64, |p, n| unsafe { glibc::epoll_pwait2(self.fd, p, n, time, mask) })
    }

    /// The mask reported for `fd` (its number is the data) within `ms`; 0 when none.
    pub fn mask_of(self, fd: Fd, ms: c_int) -> u32 {
        self.wait(ms).iter().filter(|e| e.1 == fd as u64).map(|e| e.0).next().unwrap_or(0)
    }
}
