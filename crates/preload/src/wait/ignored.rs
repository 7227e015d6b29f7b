//! Descriptors that keep poll(2) from waiting, and select(2) not: it ignores a hang-up or an error where it is asked for
//! exceptional conditions only. Such a descriptor is waited for by edge, so that the wait ends with its next news, whatever
//! that is.

use crate::debts::{self, Debt};
use crate::{errno, fdtable};
use libc::{EPOLL_CTL_ADD, EPOLLET, POLLIN, pollfd};
use sidestep_sys::{Errno, fd as fdsys};

/// How often to look at a descriptor that cannot be waited for by edge.
const LOOK_NS: u64 = 10_000_000;

pub struct Ignored {
    /// An epoll instance that holds them; -1: there is none yet.
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
    /// Makes a list of poll(2) pass over all entries that have been told something, and wait for their next news instead.
    /// The last entry is ours to use.
    pub fn begin(&mut self, list: &mut [pollfd]) {
        let Some((last, told)) = list.split_last_mut() else { return };
        for p in told.iter_mut().filter(|p| p.revents != 0) {
            self.watch(p);
            p.fd = !p.fd;
        }
        *last = pollfd { fd: self.edges, events: POLLIN, revents: 0 };
    }

    /// The entries are looked at again.
    pub fn end(&mut self, list: &mut [pollfd]) {
        let Some((_, told)) = list.split_last_mut() else { return };
        if self.edges >= 0 {
            fdsys::hush(self.edges); // before that look: what comes after it rings again
        }
        for p in told.iter_mut().filter(|p| p.fd < 0) {
            p.fd = !p.fd;
        }
    }

    /// How long to wait at most. `left`: until the end of the call; None: for ever.
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
