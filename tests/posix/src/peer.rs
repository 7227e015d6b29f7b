//! The process at the other end of a connection, as seen by the case: a puppet that executes one command after another, so that
//! a case reads as one story in one function.
//!
//! Commands and answers are lines on a unix socket, which is the puppet's standard input. A puppet checks every byte that it
//! receives and panics at a wrong one. The case then sees the channel close, and panics as well.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;

use crate::spawn;
use crate::sys::epoll::{Epoll, Event};
use crate::sys::process::{self, Ended};
use crate::sys::{Fd, fds, passing, signal};

/// Whether a started process gets the preload library, if the case has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Preload {
    Kept,
    Stripped,
}

pub struct Peer {
    pub pid: i32,
    channel: BufReader<UnixStream>,
    delay_ms: u64,
    ended: bool,
}

impl Peer {
    pub fn spawn(preload: Preload) -> Peer {
        let (ours, theirs) = fds::unix_pair();
        let pid = spawn::puppet(&spawn::Start { preload, keep: &[(theirs, 0)], args: &[] });
        fds::close(theirs).expect("close the puppet's end");
        Peer::over(ours, pid)
    }

    /// A puppet that was started in another way, with `channel` as our end of its standard input.
    pub fn over(channel: Fd, pid: i32) -> Peer {
        // SAFETY: the number is a fresh unix socket that belongs to nobody else.
        let channel = BufReader::new(unsafe { UnixStream::from_raw_fd(channel) });
        Peer { pid, channel, delay_ms: 0, ended: false }
    }

    /// Delays the start of the next command in the puppet.
    pub fn after(&mut self, ms: u64) -> &mut Peer {
        self.delay_ms = ms;
        self
    }

    /// Sends a command and does not wait for its end.
    pub fn start(&mut self, op: &str, args: &[u64]) {
        let args: String = args.iter().map(|a| format!(" {a}")).collect();
        let line = format!("{} {op}{args}\n", std::mem::take(&mut self.delay_ms));
        self.channel.get_mut().write_all(line.as_bytes()).expect("give the peer a command");
    }

    /// Waits for the answer of the last command.
    pub fn finish(&mut self) -> u64 {
        let mut line = String::new();
        match self.channel.read_line(&mut line) {
            Ok(n) if n > 0 => line.trim().parse().expect("the peer answers with a number"),
            _ => panic!("the peer process failed (its own message is above)"),
        }
    }

    pub fn call(&mut self, op: &str, args: &[u64]) -> u64 {
        self.start(op, args);
        self.finish()
    }

    pub fn send(&mut self, n: usize) {
        self.call("send", &[n as u64]);
    }

    pub fn recv(&mut self, n: usize) {
        self.call("recv", &[n as u64]);
    }

    pub fn shutdown(&mut self, how: i32) {
        self.call("shutdown", &[how as u64]);
    }

    /// Closes the connection; the peer process lives on.
    pub fn close(&mut self) {
        self.call("close", &[]);
    }

    /// Closes with SO_LINGER{1,0}, which resets the connection.
    pub fn reset(&mut self) {
        self.call("reset", &[]);
    }

    pub fn drain(&mut self) -> u64 {
        self.call("drain", &[])
    }

    pub fn set_option(&mut self, level: i32, name: i32, value: i32) {
        self.call("option", &[level as u64, name as u64, value as u64]);
    }

    /// Passes a connected socket to the puppet, which continues at these positions.
    pub fn hand_over(&mut self, end: &crate::end::End, server: bool, by_sendmmsg: bool) {
        self.start("take", &[server as u64, end.tx.at, end.rx.at]);
        passing::send_fd(std::os::fd::AsRawFd::as_raw_fd(self.channel.get_ref()), end.fd(), by_sendmmsg);
        self.finish();
    }

    /// Passes an epoll set to the puppet. Returns the set's number there.
    pub fn hand_over_set(&mut self, set: Epoll) -> u64 {
        self.start("take_set", &[]);
        passing::send_fd(std::os::fd::AsRawFd::as_raw_fd(self.channel.get_ref()), set.fd, false);
        self.finish()
    }

    /// The first event of the puppet's wait in its set with this number.
    pub fn told(&mut self, set: u64, ms: u64) -> Option<Event> {
        let answer = self.call("told", &[set, ms]);
        (answer != 0).then_some((answer as u32, answer >> 32))
    }

    pub fn signal(&self, signal: i32) {
        signal::send_to(self.pid, signal);
    }

    /// SIGKILL, and waits until the process is gone.
    pub fn kill(mut self) {
        self.signal(libc::SIGKILL);
        assert_eq!(self.wait(), Ended::Signal(libc::SIGKILL));
    }

    fn wait(&mut self) -> Ended {
        self.ended = true;
        process::wait_for(self.pid)
    }

    /// Makes the puppet end in the named way ("exit", "exit_now", "abort"), and waits for that.
    pub fn leave(mut self, how: &str) -> Ended {
        self.start(how, &[]);
        self.wait()
    }
}

impl Drop for Peer {
    /// At the end of its commands a puppet ends by itself, with its exit handlers.
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let _ = self.channel.get_ref().shutdown(std::net::Shutdown::Write);
        let ended = self.wait();
        if !std::thread::panicking() {
            assert_eq!(ended, Ended::Exit(0), "the peer process failed");
        }
    }
}
