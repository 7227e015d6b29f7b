//! Staying for a process that is no member yet. A program under `sidestep run` joins when its first connection has proved
//! long-lived, which may be long after the broker was started for that program.

use super::{Broker, Role};
use crate::counted::Counted;
use crate::receiver::loan::Loan;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use sidestep_abi::msg::{Kind, Msg};
use std::sync::Arc;

/// Most processes to stay for. With more of them the broker would be busy anyway.
const MOST: usize = 1024;

impl Broker {
    /// The broker does not end while the process at the other end of `id` lives, even if that process executes another program.
    pub(super) fn stay(&mut self, id: u64) {
        let Some(conn) = self.conns.get_mut(&id) else {
            return;
        };
        if !self.settings.trust.may_command(conn.peer.uid) {
            // The broker of another user stays for its own members.
            return self.queue(id, Msg { arg: libc::EPERM as u64, ..Msg::new(Kind::Unknown) }, None);
        }
        conn.role = Role::Waiting;
        let process = Pid::from_raw(conn.peer.pid as i32).and_then(|pid| self.watched(id, pid));
        let number = self.next_conn;
        if let Some(process) = process.filter(|process| self.poller.add(process, number).is_ok()) {
            self.next_conn += 1;
            self.stays.insert(number, process);
        }
        self.queue(id, Msg::new(Kind::Done), None);
    }

    /// A descriptor that reports the end of the process. It counts in the domain of `id`. The domain's receiver stays for as long:
    /// otherwise a domain that leaves and comes again would get another share.
    fn watched(&self, id: u64, pid: Pid) -> Option<Loan> {
        let receiver = self.receivers.get(&self.scope_of(id)).filter(|_| self.stays.len() < MOST)?;
        let permit = receiver.accounts.descriptors.claim(1)?;
        let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        Some(Loan::new(Arc::new(Counted::with(process, permit)), &receiver.mailbox))
    }

    /// A pidfd became readable: the process has ended.
    pub(super) fn process_ended(&mut self, number: u64) {
        if let Some(process) = self.stays.remove(&number) {
            // The receiver closes it later, and until then it is readable.
            self.poller.remove(&process);
        }
        self.outlived(number);
    }
}
