//! One direction's receiver.

use std::sync::Arc;

use libc::{MSG_WAITALL, POLLIN};
use sidestep_posix::rng::Rng;
use sidestep_posix::sys::errno::{EAGAIN, EINTR, Outcome};
use sidestep_posix::sys::{Fd, fds, io, poll};
use sidestep_posix::ways as calls;

use crate::content::Checked;
use crate::note::{self, Note};
use crate::plan::Plan;
use crate::wait::Waiter;
use crate::ways::{PIPE, UNREAD, WHOLE};

/// Bytes that an empty pipe takes from a socket, at most.
const PIPE_ROOM: usize = 60_000;

pub struct Receiver {
    pub fd: Fd,
    stream: Checked,
    total: u64,
    /// Whether it reads until the end, which must come after `total` bytes.
    to_end: bool,
    pub at_end: bool,
    ways: Vec<&'static str>,
    most: u64,
    rng: Rng,
    pub note: Arc<Note>,
    buf: Vec<u8>,
}

impl Receiver {
    pub fn new(fd: Fd, plan: &Plan, note: Arc<Note>) -> Receiver {
        Receiver {
            fd,
            stream: Checked::new(plan.incoming()),
            total: plan.receives,
            to_end: plan.reads_to_end,
            at_end: false,
            ways: plan.receives_by.clone(),
            most: plan.most_received,
            rng: Rng::new(plan.key ^ 2),
            note,
            buf: vec![0; plan.most_received as usize],
        }
    }

    pub fn at(&self) -> u64 {
        self.stream.at
    }

    pub fn is_done(&self) -> bool {
        if self.to_end { self.at_end } else { self.at() == self.total }
    }

    /// One call. False: there is nothing yet.
    pub fn some(&mut self) -> bool {
        let left = self.total - self.at();
        let mut room = self.rng.size(self.most);
        if !self.to_end {
            room = room.min(left as usize);
        }
        let way = *self.rng.pick(&self.ways);
        note::step("receives by", way);
        match receive(self.fd, way, &mut self.buf[..room], left) {
            Ok(0) => self.ends(),
            Ok(n) => self.came(n, way),
            Err(EAGAIN) => return false,
            Err(EINTR) => {}
            Err(e) => panic!("{way} at byte {} of {}: {e:?}", self.at(), self.total),
        }
        true
    }

    fn came(&mut self, n: usize, way: &str) {
        let at = self.at();
        assert!(
            at + n as u64 <= self.total,
            "{way} at byte {at} gave {n} bytes: more than the {} that were sent",
            self.total
        );
        if let Err(what) = self.stream.arrived(&self.buf[..n]) {
            panic!("{way} at byte {at} gave {n} bytes: {what}");
        }
        self.note.received(n);
    }

    fn ends(&mut self) {
        assert_eq!(self.at(), self.total, "the stream ended after {} of {} bytes", self.at(), self.total);
        self.at_end = true;
        assert_eq!(io::recv(self.fd, &mut [0; 8], libc::MSG_DONTWAIT), Ok(0), "the end stays the end");
    }

    /// Everything, on a socket that waits. `waiter`: how it waits before a call, besides.
    pub fn all(&mut self, mut waiter: Option<Waiter>, pauses: bool) {
        while !self.is_done() {
            if let Some(waiter) = &mut waiter {
                waiter.until(self.fd, sidestep_posix::sys::epoll::IN);
            }
            if !self.some() {
                note::step("waits by", "poll, to receive");
                poll::events_of(self.fd, POLLIN, -1);
            }
            if pauses {
                self.rng.pause();
            }
        }
        if let Some(waiter) = &mut waiter {
            waiter.forget();
        }
    }
}

fn receive(fd: Fd, way: &'static str, buf: &mut [u8], left: u64) -> Outcome {
    match way {
        WHOLE if left > 0 => whole(fd, buf, left),
        UNREAD => unread(fd, buf),
        PIPE => splice(fd, buf),
        WHOLE => io::recv(fd, buf, 0),
        _ => calls::recv_way(way)(fd, buf),
    }
}

fn whole(fd: Fd, buf: &mut [u8], left: u64) -> Outcome {
    let n = buf.len().min(left as usize);
    let got = io::recv(fd, &mut buf[..n], MSG_WAITALL);
    assert_eq!(got, Ok(n), "MSG_WAITALL waits for all bytes");
    got
}

/// A call that would not wait gets as many bytes as FIONREAD has told.
fn unread(fd: Fd, buf: &mut [u8]) -> Outcome {
    let n = buf.len().min(fds::unread(fd) as usize);
    if n == 0 {
        return io::recv(fd, buf, 0);
    }
    let got = io::recv(fd, &mut buf[..n], libc::MSG_DONTWAIT);
    assert!(got.is_ok_and(|got| got > 0), "FIONREAD told {n} bytes, recv gave {got:?}");
    got
}

fn splice(fd: Fd, buf: &mut [u8]) -> Outcome {
    let pipe = fds::pipe(libc::O_CLOEXEC);
    let spliced = io::splice(fd, pipe.1, buf.len().min(PIPE_ROOM), 0);
    let mut done = 0;
    while done < spliced.unwrap_or(0) {
        done += io::read(pipe.0, &mut buf[done..]).expect("read of a pipe");
    }
    fds::close(pipe.0)?;
    fds::close(pipe.1)?;
    spliced
}
