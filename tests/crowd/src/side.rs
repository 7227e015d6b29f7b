//! One end of a connection, as it stands.

use std::sync::Arc;

use sidestep_posix::rng::Rng;
use sidestep_posix::sys::epoll::{IN, OUT};
use sidestep_posix::sys::{Fd, fds, net};

use crate::note::{self, Note};
use crate::plan::Plan;
use crate::receive::Receiver;
use crate::send::Sender;

pub struct Side {
    pub plan: Plan,
    pub sender: Sender,
    pub receiver: Receiver,
    has_shut: bool,
    pub rng: Rng,
    pub note: Arc<Note>,
}

impl Side {
    pub fn new(fd: Fd, plan: Plan) -> Side {
        let note = Note::new(format!("{plan:?}"));
        let (sender, receiver) = (Sender::new(fd, &plan, note.clone()), Receiver::new(fd, &plan, note.clone()));
        Side { sender, receiver, has_shut: false, rng: Rng::new(plan.key ^ 5), note, plan }
    }

    pub fn fd(&self) -> Fd {
        self.receiver.fd
    }

    pub fn moved_to(&mut self, fd: Fd) {
        (self.sender.fd, self.receiver.fd) = (fd, fd);
    }

    /// Bytes of both directions so far.
    pub fn at(&self) -> u64 {
        self.sender.at + self.receiver.at()
    }

    pub fn is_done(&self) -> bool {
        self.sender.is_done() && (self.has_shut || !self.plan.shuts) && self.receiver.is_done()
    }

    fn may_send(&self) -> bool {
        !self.sender.is_done() && (self.receiver.at_end || !self.plan.waits_for_end)
    }

    fn must_shut(&self) -> bool {
        self.plan.shuts && !self.has_shut && self.sender.is_done() && (self.receiver.at_end || !self.plan.waits_for_end)
    }

    /// Events that it waits for. An end that only has to shut down, or to close, can do so when it has room for bytes.
    pub fn wanted(&self) -> u32 {
        let (receives, sends) = (!self.receiver.is_done(), self.may_send() || self.must_shut() || self.is_done());
        (if receives { IN } else { 0 }) | (if sends { OUT } else { 0 })
    }

    /// Some calls that do not wait. True: both directions would have to wait.
    pub fn turn(&mut self) -> bool {
        for _ in 0..1 + self.rng.below(12) {
            let received = !self.receiver.is_done() && self.receiver.some();
            if !received && !self.send_some() {
                return true;
            }
        }
        false
    }

    /// True: it has sent, or shut down.
    fn send_some(&mut self) -> bool {
        if self.may_send() {
            return self.sender.some();
        }
        let now = self.must_shut();
        if now {
            note::step("shuts down", "");
            net::shutdown(self.fd(), libc::SHUT_WR).expect("shutdown");
            self.has_shut = true;
        }
        now
    }

    pub fn close(self) {
        note::step("closes", "");
        fds::close(self.fd()).expect("close");
        self.note.ended();
    }
}

/// Its sizes of buffers.
pub fn set_buffers(fd: Fd, plan: &Plan) {
    for (option, size) in [libc::SO_SNDBUF, libc::SO_RCVBUF].into_iter().zip(plan.buffers) {
        if let Some(size) = size {
            net::set_option(fd, libc::SOL_SOCKET, option, &size).expect("a buffer's size");
        }
    }
}
