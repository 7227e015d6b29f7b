//! Descriptors that end a poll(2) but not a select(2): select(2) ignores a hang-up or an error if only exceptional conditions
//! are asked for. Such a descriptor is watched by edge, so that its next news, whatever it is, ends the wait.

use crate::debts::{self, Debt};
use crate::{errno, fdtable};
use libc::{EPOLL_CTL_ADD, EPOLLET, POLLIN, pollfd};
use sidestep_sys::{Errno, fd as fdsys};

/// Interval of looks at a descriptor that cannot be watched by edge.
const LOOK_NS: u64 = 10_000_000;

pub struct Ignored {
    /// An epoll instance that holds the descriptors; -1: none yet.
    edges: i32,
    /// One of them could not be added to it.
    is_unwatched: bool,
}

impl Default for Ignored {
    fn default() -> Ignored {
        Ignored { edges: -1, is_unwatched: false }
    }
}

impl Drop for Ignored {
    fn drop(&mut self) {
        if self.edges >= 0 {
            debts::paid(Debt::descriptor(self.edges));
            errno::keep(|| fdtable::drop_own(self.edges));
        }
    }
}

impl Ignored {
    /// Makes poll(2) skip all entries of the list that have events, and wait for their next news instead. The last entry is
    /// free for this module.
    pub fn begin(&mut self, list: &mut [pollfd]) {
        let Some((last, told)) = list.split_last_mut() else { return };
        for p in told.iter_mut().filter(|p| p.revents != 0) {
            self.watch(p);
            p.fd = !p.fd;
        }
        *last = pollfd { fd: self.edges, events: POLLIN, revents: 0 };
    }

    /// Makes poll(2) look at the skipped entries again.
    pub fn end(&mut self, list: &mut [pollfd]) {
        let Some((_, told)) = list.split_last_mut() else { return };
        if self.edges >= 0 {
            fdsys::hush(self.edges); // before the next look: news after that look ring again
        }
        for p in told.iter_mut().filter(|p| p.fd < 0) {
            p.fd = !p.fd;
        }
    }

    /// Longest time to wait. `left`: time until the end of the call; None: no limit.
    pub fn limit(&self, left: Option<u64>) -> Option<u64> {
        if self.is_unwatched { Some(left.map_or(LOOK_NS, |ns| ns.min(LOOK_NS))) } else { left }
    }

    fn watch(&mut self, p: &pollfd) {
        if self.edges < 0 {
            self.create();
        }
        let added = self.edges >= 0
            && matches!(
                fdsys::epoll_ctl(self.edges, EPOLL_CTL_ADD, p.fd, p.events as u16 as u32 | EPOLLET as u32, 0),
                Ok(()) | Err(Errno(libc::EEXIST)) // an earlier round has added it
            );
        self.is_unwatched |= !added;
    }

    fn create(&mut self) {
        if let Ok(new) = fdsys::doorbell() {
            fdtable::set(new, fdtable::Kind::Own);
            debts::owe_from(Debt::descriptor(new), &raw const *self as usize);
            self.edges = new;
        }
    }
}
