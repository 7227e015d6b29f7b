//! Reading the configuration again while the broker serves: in a thread of its own, since its file may be anywhere.

use crate::config::ConfigError;
use crate::users::Users;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};

type Answer = Result<Users, ConfigError>;
type Load = dyn Fn() -> Answer + Send + Sync;

/// When to do it, and how.
pub struct Reload {
    asked: OwnedFd,
    load: Arc<Load>,
    sender: mpsc::Sender<Answer>,
    answers: mpsc::Receiver<Answer>,
    /// Written to after an answer.
    tell: UnixStream,
    told: UnixStream,
    state: State,
}

/// One thread at a time: of two, the one that has read the older file could be the last to answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Reading,
    /// It was asked for while a thread was reading.
    ReadingOnceMore,
}

impl Reload {
    /// `asked` becomes readable, a byte for each time.
    pub fn new(asked: OwnedFd, load: impl Fn() -> Answer + Send + Sync + 'static) -> io::Result<Reload> {
        let (tell, told) = UnixStream::pair()?;
        tell.set_nonblocking(true)?;
        told.set_nonblocking(true)?;
        let (sender, answers) = mpsc::channel();
        Ok(Reload { asked, load: Arc::new(load), sender, answers, tell, told, state: State::Idle })
    }

    /// Becomes readable when somebody asks for the configuration to be read again.
    pub fn asked(&self) -> BorrowedFd<'_> {
        self.asked.as_fd()
    }

    /// Becomes readable when it has been read.
    pub fn answered(&self) -> BorrowedFd<'_> {
        self.told.as_fd()
    }

    /// It was asked for.
    pub fn start(&mut self) {
        // However often: once is enough.
        let _ = rustix::io::read(&self.asked, &mut [0; 64]);
        match self.state {
            State::Idle => self.spawn(),
            State::Reading | State::ReadingOnceMore => self.state = State::ReadingOnceMore,
        }
    }

    fn spawn(&mut self) {
        let (load, sender, tell) = (self.load.clone(), self.sender.clone(), self.tell.try_clone());
        let run = move || {
            // Nobody listens any more, or there is an answer already that wakes the server.
            let _ = sender.send(load());
            let _ = tell.map(|tell| rustix::io::write(&tell, &[0]));
        };
        let spawned = std::thread::Builder::new().name("reload".into()).spawn(run);
        // Without a thread everything stays as it is.
        self.state = if spawned.is_ok() { State::Reading } else { State::Idle };
    }

    /// What came of it, if it is done.
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
