//! Processes that live on after the broker has hung up on them, because a record could not be sent or received. They continue
//! with the rings that they have. Until such a process ends, the broker gives back no memory that it may still read, and keeps
//! the eventfds with which it rings or is rung.

use super::Broker;
use super::conn::Talk;
use crate::quota::{Account, Permit};
use crate::wire;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::sync::Arc;

/// A process that was cut off.
pub struct CutOff {
    /// None: the process is not visible from here. What it shares is then kept for as long as the broker runs.
    pid: Option<Pid>,
    /// Link and side of the connections that the process has not released.
    shares: Vec<(u32, usize)>,
    /// The account for the descriptor of `watched`.
    account: Arc<Account>,
    /// Descriptor that reports the end of the process. None: no descriptor was available yet.
    watched: Option<(OwnedFd, Permit)>,
}

impl Broker {
    /// Whether the process of `id` may continue without the broker. A process that violated the protocol may not.
    pub(super) fn outlives_us(&self, id: u64) -> bool {
        let conn = self.conns.get(&id).filter(|conn| conn.talk != Talk::Violated);
        conn.is_some_and(|conn| !wire::has_hung_up(conn.socket.as_fd()))
    }

    /// Starts to watch for the end of the process of `id`.
    pub(super) fn cut_off(&mut self, id: u64, shares: Vec<(u32, usize)>) {
        let Some((conn, accounts)) = self.conns.get(&id).zip(self.accounts_of(id)) else {
            return;
        };
        let (pid, account) = (Pid::from_raw(conn.peer.pid as i32), accounts.descriptors.clone());
        let number = self.next_conn;
        self.next_conn += 1;
        self.cut_off.insert(number, CutOff { pid, shares, account, watched: None });
    }

    /// Opens the descriptors that are still missing, and forgets those of whom nothing is kept any more.
    pub(super) fn watch_cut_off(&mut self) {
        self.cut_off.retain(|_, it| it.shares.iter().any(|(link, _)| self.links.contains_key(link)));
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
                // No descriptor or no memory now: the next call tries again.
                _ => {}
            }
        }
    }

    /// A watched process has ended. No effect if `number` is not the number of one.
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
