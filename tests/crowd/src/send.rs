//! One direction's sender.

use std::sync::Arc;

use libc::{MSG_MORE, MSG_NOSIGNAL, POLLOUT};
use sidestep_posix::rng::Rng;
use sidestep_posix::sys::errno::{EAGAIN, EINTR, Outcome};
use sidestep_posix::sys::{Fd, fds, files, io, poll};
use sidestep_posix::ways as calls;

use crate::content::Stream;
use crate::note::{self, Note};
use crate::plan::Plan;
use crate::ways::{MESSAGES, MORE, PIPE, SENDFILE};

/// Bytes that a pipe of the default size takes in one write, whatever the alignment.
const PIPE_ROOM: usize = 60_000;

pub struct Sender {
    pub fd: Fd,
    stream: Stream,
    pub at: u64,
    total: u64,
    ways: Vec<&'static str>,
    most: u64,
    rng: Rng,
    pub note: Arc<Note>,
}

impl Sender {
    pub fn new(fd: Fd, plan: &Plan, note: Arc<Note>) -> Sender {
        let (ways, rng) = (plan.sends_by.clone(), Rng::new(plan.key ^ 1));
        Sender { fd, stream: plan.out(), at: 0, total: plan.sends, ways, most: plan.most_sent, rng, note }
    }

    pub fn is_done(&self) -> bool {
        self.at == self.total
    }

    /// One call. False: it had to wait, and would not.
    pub fn some(&mut self) -> bool {
        let n = self.rng.size(self.most).min((self.total - self.at) as usize);
        let (bytes, way) = (self.stream.pattern(0).bytes(self.at, n), *self.rng.pick(&self.ways));
        note::step("sends by", way);
        let is_last = self.at + n as u64 == self.total;
        match send(self.fd, way, &bytes, is_last) {
            Err(EAGAIN) => return false,
            // Its first message was empty, and the second would have waited.
            Ok(0) if way == MESSAGES => return false,
            Ok(sent) => {
                assert!((1..=n).contains(&sent), "{way} of {n} bytes at byte {} gave {sent}", self.at);
                self.at += sent as u64;
                self.note.sent(sent);
            }
            Err(EINTR) => {}
            Err(e) => panic!("{way} at byte {} of {}: {e:?}", self.at, self.total),
        }
        true
    }

    /// Everything, on a socket that waits.
    pub fn all(&mut self, pauses: bool) {
        while !self.is_done() {
            if !self.some() {
                note::step("waits by", "poll, to send");
                poll::events_of(self.fd, POLLOUT, -1);
            }
            if pauses {
                self.rng.pause();
            }
        }
    }
}

fn send(fd: Fd, way: &'static str, bytes: &[u8], is_last: bool) -> Outcome {
    match way {
        MORE if !is_last => io::send(fd, bytes, MSG_NOSIGNAL | MSG_MORE),
        MORE => io::send(fd, bytes, MSG_NOSIGNAL),
        SENDFILE => sendfile(fd, bytes),
        PIPE => splice(fd, &bytes[..bytes.len().min(PIPE_ROOM)]),
        _ => calls::send_way(way)(fd, bytes),
    }
}

fn sendfile(fd: Fd, bytes: &[u8]) -> Outcome {
    let file = files::holding(bytes);
    let sent = io::sendfile(fd, file, None, bytes.len());
    fds::close(file)?;
    sent
}

/// What the socket does not take is dropped with the pipe.
fn splice(fd: Fd, bytes: &[u8]) -> Outcome {
    let pipe = fds::pipe(libc::O_CLOEXEC);
    assert_eq!(io::write(pipe.1, bytes), Ok(bytes.len()), "filling a pipe");
    let sent = io::splice(pipe.0, fd, bytes.len(), 0);
    fds::close(pipe.0)?;
    fds::close(pipe.1)?;
    sent
}
