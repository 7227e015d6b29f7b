//! select(2), put in terms of poll(2). Only when a set holds a connection of ours.

use super::poll;
use crate::fdtable::{self, Kind};
use crate::{arena, errno, record::flag};
use libc::{POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, fd_set, pollfd};
use sidestep_sys::Errno;

/// The three sets of a call; null where the program gave none.
#[derive(Clone, Copy)]
pub struct Sets {
    pub nfds: i32,
    pub read: *mut fd_set,
    pub write: *mut fd_set,
    pub except: *mut fd_set,
}

impl Sets {
    /// Whether any descriptor in the sets is a connection or an epoll set of ours.
    pub fn concern_us(&self) -> bool {
        (0..self.nfds).any(|fd| match fdtable::get(fd) {
            Kind::Conn(index) if self.wanted(fd) != 0 => {
                arena::conn(index).raise(flag::WAITED);
                true
            }
            Kind::Set(_) => self.wanted(fd) != 0,
            _ => false,
        })
    }

    /// The poll events that stand for what is wanted of `fd` (select(2), "correspondence").
    fn wanted(&self, fd: i32) -> i16 {
        let (r, w, e) = (has(self.read, fd), has(self.write, fd), has(self.except, fd));
        (if r { POLLIN } else { 0 }) | (if w { POLLOUT } else { 0 }) | (if e { POLLPRI } else { 0 })
    }

    /// select(2). `ns`: None waits for ever.
    pub fn select(&self, ns: Option<u64>, mask: *const libc::sigset_t) -> i32 {
        let count = self.wanted_fds().count();
        poll::with_list(count, |fds| self.select_in(fds, ns, mask)).unwrap_or_else(|e| errno::give(Err(e)) as i32)
    }

    /// The same with a list that has room for all descriptors.
    fn select_in(&self, fds: &mut [pollfd], ns: Option<u64>, mask: *const libc::sigset_t) -> i32 {
        for (p, fd) in fds.iter_mut().zip(self.wanted_fds()) {
            *p = pollfd { fd, events: self.wanted(fd), revents: 0 };
        }
        let (list, n) = (fds.as_mut_ptr(), fds.len() as u64);
        let native = || {
            let timeout = super::Deadline::after_ns(ns).left(None);
            // SAFETY: the list built above; the mask is the program's or null.
            unsafe { crate::next::ppoll(list, n, super::as_ptr(&timeout), mask) }
        };
        let n = poll::poll(fds, ns, mask, native);
        if n < 0 { n } else { self.give(fds) }
    }

    fn wanted_fds(&self) -> impl Iterator<Item = i32> {
        (0..self.nfds).filter(|fd| self.wanted(*fd) != 0)
    }

    /// Turns the answers into sets. A descriptor that is not open is an error of the whole call.
    fn give(&self, fds: &[pollfd]) -> i32 {
        if fds.iter().any(|p| p.revents & POLLNVAL != 0) {
            return errno::give(Err(Errno(libc::EBADF))) as i32;
        }
        let mut bits = 0;
        for p in fds {
            bits += keep(self.read, p, POLLIN, POLLIN | POLLHUP | POLLERR);
            bits += keep(self.write, p, POLLOUT, POLLOUT | POLLERR);
            bits += keep(self.except, p, POLLPRI, POLLPRI);
        }
        bits
    }
}

fn has(set: *mut fd_set, fd: i32) -> bool {
    // SAFETY: the program vouches for its sets up to nfds; glibc lays them out as an array of words, which may be
    // longer than FD_SETSIZE.
    !set.is_null() && unsafe { *set.cast::<u64>().add(fd as usize / 64) } & 1 << (fd % 64) != 0
}

/// Leaves the bit if the answer warrants it, else clears it. Returns the number of bits left.
fn keep(set: *mut fd_set, p: &pollfd, wanted: i16, warrants: i16) -> i32 {
    if p.events & wanted == 0 || set.is_null() {
        return 0;
    }
    let left = p.revents & warrants != 0;
    if !left {
        // SAFETY: as in `has`; the bit was set, so its word exists.
        unsafe { *set.cast::<u64>().add(p.fd as usize / 64) &= !(1 << (p.fd % 64)) };
    }
    i32::from(left)
}
