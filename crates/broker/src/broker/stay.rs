//! Staying for a process that is no member yet. A program under `sidestep run` joins when its first connection has proved
//! long-lived, which may be long after the broker was started for that program.

use super::{Broker, Role};
use crate::counted::Counted;
use crate::raw::sock;
use crate::receiver::loan::Loan;
use crate::wire;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
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
        let process = self.watched(id);
        let number = self.next_conn;
        if let Some(process) = process.filter(|process| self.poller.add(process, number).is_ok()) {
            self.next_conn += 1;
            self.stays.insert(number, process);
        }
        self.queue(id, Msg::new(Kind::Done), None);
    }

    /// A descriptor that reports the end of the process. It counts in the domain of `id`. The domain's receiver stays for as long:
    /// otherwise a domain that leaves and comes again would get another share.
    fn watched(&self, id: u64) -> Option<Loan> {
        let conn = self.conns.get(&id)?;
        let receiver = self.receivers.get(&self.scope_of(id)).filter(|_| self.stays.len() < MOST)?;
        let permit = receiver.accounts.descriptors.claim(1)?;
        let process = process_of(conn.socket.as_fd(), conn.peer.pid)?;
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

/// The process that has connected this socket. Its number may be another's by now: it may have handed the socket on, and ended.
fn process_of(socket: BorrowedFd<'_>, pid: u32) -> Option<OwnedFd> {
    match sock::peer_pidfd(socket) {
        Ok(process) => Some(process),
        Err(e) if e.raw_os_error() == Some(Errno::NOPROTOOPT.raw_os_error()) => process_by_number(socket, pid),
        Err(_) => None,
    }
}

/// Before Linux 6.5. A process that still has the socket when its number has been looked up is most likely the one that connected it.
fn process_by_number(socket: BorrowedFd<'_>, pid: u32) -> Option<OwnedFd> {
    let process = pidfd_open(Pid::from_raw(pid as i32)?, PidfdFlags::empty()).ok()?;
    (!wire::has_hung_up(socket)).then_some(process)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use rustix::time::Timespec;
    use std::process::Command;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a pair of sockets")
    }

    fn has_ended(process: &OwnedFd) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&now)).expect("poll") == 1
    }

    #[test]
    fn who_has_connected_is_watched_and_not_who_has_its_number() {
        let (ours, _theirs) = pair();
        if sock::peer_pidfd(ours.as_fd()).is_err() {
            return; // Linux before 6.5 cannot tell.
        }
        // This process has made the pair.
        let mut other = Command::new("true").spawn().expect("true (coreutils)");
        other.wait().expect("it ends");
        let process = process_of(ours.as_fd(), other.id()).expect("whatever the number is");
        assert!(!has_ended(&process), "this process lives");
    }

    #[test]
    fn by_its_number_only_a_process_is_found_that_may_still_be_connected() {
        let (ours, theirs) = pair();
        assert!(process_by_number(ours.as_fd(), std::process::id()).is_some());
        drop(theirs);
        assert!(process_by_number(ours.as_fd(), std::process::id()).is_none());
        assert!(process_by_number(ours.as_fd(), 0).is_none(), "not visible from here");
    }
}
