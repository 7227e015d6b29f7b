//! Staying for a process that is no member yet. A program under `sidestep run` joins when its first connection has proved
//! long-lived, which may be long after the broker was started for that program.

use super::{Broker, Role};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use sidestep_abi::msg::{Kind, Msg};

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

    /// A pidfd became readable: the process has ended.
    pub(super) fn process_ended(&mut self, number: u64) {
        self.stays.remove(&number);
        self.outlived(number);
    }
}
