//! Reading the configuration again while the broker serves. A thread does this, since reading the file may block.

use crate::config::ConfigError;
use crate::subordinates::Subordinates;
use crate::trust::Trust;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};

/// What is read again.
#[derive(Debug)]
pub struct Reloaded {
    /// Who may share memory.
    pub trust: Trust,
    /// Which users are one domain.
    pub subordinates: Subordinates,
}

type Answer = Result<Reloaded, ConfigError>;
type Load = dyn Fn() -> Answer + Send + Sync;

/// Requests to read the configuration, and how to do it.
pub struct Reload {
    asked: OwnedFd,
    load: Arc<Load>,
    sender: mpsc::Sender<Answer>,
    answers: mpsc::Receiver<Answer>,
    /// Written to after each answer.
    tell: UnixStream,
    told: UnixStream,
    state: State,
}

/// Only one thread reads at a time: otherwise the one that read the older file might answer last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Reading,
    /// A request came while a thread was reading.
    ReadingOnceMore,
}

impl Reload {
    /// `asked` becomes readable with a byte for each request.
    pub fn new(asked: OwnedFd, load: impl Fn() -> Answer + Send + Sync + 'static) -> io::Result<Reload> {
        let (tell, told) = UnixStream::pair()?;
        tell.set_nonblocking(true)?;
        told.set_nonblocking(true)?;
        let (sender, answers) = mpsc::channel();
        Ok(Reload { asked, load: Arc::new(load), sender, answers, tell, told, state: State::Idle })
    }

    /// Becomes readable at a request.
    pub fn asked(&self) -> BorrowedFd<'_> {
        self.asked.as_fd()
    }

    /// Becomes readable when the configuration has been read.
    pub fn answered(&self) -> BorrowedFd<'_> {
        self.told.as_fd()
    }

    /// Handles requests.
    pub fn start(&mut self) {
        // Any number of requests needs only one reading.
        let _ = rustix::io::read(&self.asked, &mut [0; 64]);
        match self.state {
            State::Idle => self.spawn(),
            State::Reading | State::ReadingOnceMore => self.state = State::ReadingOnceMore,
        }
    }

    fn spawn(&mut self) {
        let (load, sender, tell) = (self.load.clone(), self.sender.clone(), self.tell.try_clone());
        let run = move || {
            // If either fails, nobody listens any more, or an unread answer wakes the server already.
            let _ = sender.send(load());
            let _ = tell.map(|tell| rustix::io::write(&tell, &[0]));
        };
        let spawned = std::thread::Builder::new().name("reload".into()).spawn(run);
        // If no thread can be started, the settings stay as they are.
        self.state = if spawned.is_ok() { State::Reading } else { State::Idle };
    }

    /// The answer, if there is one.
    pub fn answer(&mut self) -> Option<Answer> {
        let _ = rustix::io::read(&self.told, &mut [0; 64]);
        let answer = self.answers.try_recv().ok()?;
        match std::mem::replace(&mut self.state, State::Idle) {
            State::ReadingOnceMore => self.spawn(),
            State::Idle | State::Reading => {}
        }
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    fn wait(fd: BorrowedFd<'_>) {
        let limit = rustix::time::Timespec { tv_sec: 10, tv_nsec: 0 };
        let mut readable = [rustix::event::PollFd::from_borrowed_fd(fd, rustix::event::PollFlags::IN)];
        assert_eq!(rustix::event::poll(&mut readable, Some(&limit)), Ok(1));
    }

    #[test]
    fn what_is_asked_for_meanwhile_is_done_afterwards_and_once() {
        let (mut ask, asked) = UnixStream::pair().expect("socket pair");
        let (go, gate) = mpsc::channel::<()>();
        let (gate, reads) = (std::sync::Mutex::new(gate), Arc::new(AtomicUsize::new(0)));
        let count = reads.clone();
        let load = move || {
            let n = count.fetch_add(1, SeqCst);
            gate.lock().expect("one at a time").recv().expect("the test lives");
            Err(ConfigError::Read { file: n.to_string().into(), source: io::ErrorKind::NotFound.into() })
        };
        let mut reload = Reload::new(asked.into(), load).expect("set up");
        for _ in 0..3 {
            ask.write_all(&[0]).expect("asked");
            reload.start();
        }
        for n in ["0", "1"] {
            go.send(()).expect("somebody reads");
            wait(reload.answered());
            let answer = reload.answer().expect("it is done").expect_err("as above");
            assert_eq!(answer.to_string(), format!("{n}: cannot read it"));
        }
        assert!(reload.answer().is_none());
        assert_eq!(reads.load(SeqCst), 2);
    }
}
