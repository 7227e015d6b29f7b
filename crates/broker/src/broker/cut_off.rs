//! Processes that live on although we have hung up on them: a record could not be sent or received. They go on with the
//! rings that they have. Until such a process ends, no memory that it may still read is given back, and what it rings with,
//! or is rung with, stays.

use super::Broker;
use super::conn::Talk;
use crate::quota::{Account, Permit};
use crate::wire;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::sync::Arc;

/// One of them.
pub struct CutOff {
    /// None: it cannot be seen from here. What it shares stays as long as we do, then.
    pid: Option<Pid>,
    /// Link and side: where it has not released everything.
    shares: Vec<(u32, usize)>,
    /// Of descriptors.
    account: Arc<Account>,
    /// None: there was no descriptor for it yet.
    watched: Option<(OwnedFd, Permit)>,
}

impl Broker {
    /// Whether the process of `id` may go on without us. One that breaks the protocol has nothing to go on with.
    pub(super) fn outlives_us(&self, id: u64) -> bool {
        let conn = self.conns.get(&id).filter(|conn| conn.talk != Talk::Violated);
        conn.is_some_and(|conn| !wire::has_hung_up(conn.socket.as_fd()))
    }

    /// The end of the process of `id` is watched for.
    pub(super) fn cut_off(&mut self, id: u64, shares: Vec<(u32, usize)>) {
        let Some((conn, accounts)) = self.conns.get(&id).zip(self.accounts_of(id)) else {
            return;
        };
        let (pid, account) = (Pid::from_raw(conn.peer.pid as i32), accounts.descriptors.clone());
        let number = self.next_conn;
        self.next_conn += 1;
        self.cut_off.insert(number, CutOff { pid, shares, account, watched: None });
    }

    /// Those that are not watched yet.
    pub(super) fn watch_cut_off(&mut self) {
        let unwatched = self.cut_off.iter().filter(|(_, it)| it.watched.is_none());
        let found: Vec<_> =
            unwatched.filter_map(|(&number, it)| Some((number, it.pid?, it.account.claim(1)?))).collect();
        for (number, pid, permit) in found {
            match pidfd_open(pid, PidfdFlags::empty()) {
                Ok(process) if self.poller.add(&process, number).is_ok() => {
                    if let Some(it) = self.cut_off.get_mut(&number) {
                        it.watched = Some((process, permit));
                    }
                }
                Err(Errno::SRCH) => self.outlived(number),
                // No descriptor, no memory: at the next occasion.
                _ => {}
            }
        }
    }

    /// A process has ended that we had hung up on, if this is the number of one.
    pub(super) fn outlived(&mut self, number: u64) {
        let Some(CutOff { shares, .. }) = self.cut_off.remove(&number) else {
            return;
        };
        for (id, side) in shares {
            let holes = self.links.get_mut(&id).map(|link| link.outlive(side)).unwrap_or_default();
            holes.into_iter().for_each(|hole| self.punch(id, Some(hole)));
            self.drop_if_done(id);
        }
    }
}
