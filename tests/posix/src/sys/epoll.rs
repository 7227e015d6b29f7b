//! An epoll set.

use libc::{c_int, epoll_event, sigset_t};

use super::errno::{Outcome, outcome};
use super::poll::timespec_ms;
use super::{Fd, glibc};

macro_rules! masks {
    ($($name:ident = $value:ident),*) => { $(
        #[doc = concat!("`", stringify!($value), "` of epoll_ctl(2), in the type of its field `events`.")]
        pub const $name: u32 = libc::$value as u32;
    )* };
}

masks! {
    IN = EPOLLIN, OUT = EPOLLOUT, PRI = EPOLLPRI, RDHUP = EPOLLRDHUP, HUP = EPOLLHUP, ERR = EPOLLERR, ET = EPOLLET,
    ONESHOT = EPOLLONESHOT, EXCLUSIVE = EPOLLEXCLUSIVE
}

/// An event as (mask, data).
pub type Event = (u32, u64);

/// A set's descriptor. It stays open until the case closes it: copying this copies the number only.
#[derive(Clone, Copy)]
pub struct Epoll {
    /// The set itself, which can be a member of another set.
    pub fd: Fd,
}

impl Default for Epoll {
    fn default() -> Epoll {
        Epoll::new()
    }
}

impl Epoll {
    /// An empty set, closed on exec.
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

    /// epoll_ctl(2); `op` is EPOLL_CTL_ADD, EPOLL_CTL_MOD or EPOLL_CTL_DEL.
    pub fn control(self, op: c_int, fd: Fd, mask: u32, data: u64) -> Outcome {
        let mut event = epoll_event { events: mask, u64: data };
        // SAFETY: the event is a live value.
        outcome(unsafe { libc::epoll_ctl(self.fd, op, fd, &mut event) })
    }

    /// Adds with the fd's number as data.
    pub fn add(self, fd: Fd, mask: u32) {
        self.control(libc::EPOLL_CTL_ADD, fd, mask, fd as u64).expect("EPOLL_CTL_ADD");
    }

    /// Changes the mask, and makes the fd's number the data.
    pub fn modify(self, fd: Fd, mask: u32) {
        self.control(libc::EPOLL_CTL_MOD, fd, mask, fd as u64).expect("EPOLL_CTL_MOD");
    }

    /// Panics if `fd` is not in the set.
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

    /// epoll_wait(2) for at most `room` events and `ms` milliseconds; -1: for ever.
    pub fn try_wait(self, room: usize, ms: c_int) -> Result<Vec<Event>, super::errno::Errno> {
        // SAFETY: the pointer has room for that many events.
        Epoll::collect(room, |p, n| unsafe { libc::epoll_wait(self.fd, p, n, ms) })
    }

    /// As [`Epoll::try_wait`] with room for 64 events; panics on an error.
    pub fn wait(self, ms: c_int) -> Vec<Event> {
        self.try_wait(64, ms).expect("epoll_wait")
    }

    /// epoll_pwait(2): `mask` is the signal mask during the call.
    pub fn pwait(self, ms: c_int, mask: &sigset_t) -> Result<Vec<Event>, super::errno::Errno> {
        // SAFETY: the pointer has room for that many events; the mask is a live value.
        Epoll::collect(64, |p, n| unsafe { libc::epoll_pwait(self.fd, p, n, ms, mask) })
    }

    /// epoll_pwait2(2), whose timeout is a timespec. None: the mask stays as it is.
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
