//! Staying for a process that has not said anything yet: a program under `sidestep run` joins when its first
//! connection has proved long-lived, which may be long after the broker was started for it.

use super::{Broker, Role};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use sidestep_abi::msg::{Kind, Msg};

/// Processes of one broker to stay for. With more of them it would be busy anyway.
const MOST: usize = 1024;

impl Broker {
    /// Not to leave while the process at the other end of `id` lives (it may have replaced its program by then).
    pub(super) fn stay(&mut self, id: u64) {
        let Some(conn) = self.conns.get_mut(&id) else {
            return;
        };
        if !self.settings.users.may_command(conn.peer.uid) {
            // A guest: there are members of its own to stay for.
            return self.queue(id, Msg { arg: libc::EPERM as u64, ..Msg::new(Kind::Unknown) }, None);
        }
        conn.role = Role::Waiting;
        let pid = self.conns.get(&id).and_then(|conn| Pid::from_raw(conn.peer.pid as i32));
        let watched = pid.filter(|_| self.stays.len() < MOST).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let number = self.next_conn;
        let added = watched.filter(|process| self.poller.add(process, number).is_ok());
        if let Some(process) = added {
            self.next_conn += 1;
            self.stays.insert(number, process);
        }
        self.queue(id, Msg::new(Kind::Done), None);
    }

    /// A pidfd became readable.
    pub(super) fn process_ended(&mut self, number: u64) {
        self.stays.remove(&number);
        self.outlived(number);
    }
}
