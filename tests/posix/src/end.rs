//! One end of a connection, with the positions of its two directions.
//!
//! All bytes that are sent follow the outgoing stream's pattern, and all received bytes are compared with the incoming
//! stream's. So every byte of every case is checked, whatever the case is about.

use std::time::{Duration, Instant};

pub use crate::hosts::Side;
use crate::pattern::Pattern;
use crate::sys::errno::{EAGAIN, EINTR, Errno, Outcome};
use crate::sys::{Fd, fds, io, poll};

pub type Send = fn(Fd, &[u8]) -> Outcome;
pub type Recv = fn(Fd, &mut [u8]) -> Outcome;

/// The outgoing direction.
pub struct Tx {
    pub fd: Fd,
    pattern: Pattern,
    pub at: u64,
}

/// The incoming direction.
pub struct Rx {
    pub fd: Fd,
    pattern: Pattern,
    pub at: u64,
}

pub struct End {
    pub tx: Tx,
    pub rx: Rx,
}

impl Tx {
    /// The next `n` bytes to send. [`Tx::sent`] then records how many of them were sent.
    pub fn upcoming(&self, n: usize) -> Vec<u8> {
        self.pattern.bytes(self.at, n)
    }

    pub fn sent(&mut self, n: usize) {
        self.at += n as u64;
    }

    /// Makes one call with `n` bytes, and advances by the bytes that it took.
    pub fn try_send(&mut self, n: usize, call: Send) -> Outcome {
        let done = call(self.fd, &self.upcoming(n))?;
        assert!(done <= n, "a call took {done} bytes of {n}");
        self.sent(done);
        Ok(done)
    }

    /// Sends `n` bytes with as many calls as it takes.
    pub fn send_by(&mut self, n: usize, call: Send) {
        let goal = self.at + n as u64;
        while self.at < goal {
            match self.try_send(((goal - self.at) as usize).min(1 << 20), call) {
                Ok(_) | Err(EINTR) => {}
                Err(EAGAIN) => drop(poll::events_of(self.fd, libc::POLLOUT, -1)),
                Err(e) => panic!("sending at byte {}: {e:?}", self.at),
            }
        }
    }

    pub fn send(&mut self, n: usize) {
        self.send_by(n, |fd, buf| io::send(fd, buf, libc::MSG_NOSIGNAL));
    }

    /// Sends without blocking until no byte has fitted for a while. That is longer than the kernel delays an acknowledgement,
    /// after which more fits. Returns the number of bytes.
    pub fn fill(&mut self) -> usize {
        let start = self.at;
        let mut last = Instant::now();
        while last.elapsed() < Duration::from_millis(260) {
            let room = if last.elapsed() < Duration::from_millis(20) { 16 << 10 } else { 1 };
            match self.try_send(room, |fd, buf| io::send(fd, buf, libc::MSG_DONTWAIT)) {
                Ok(_) => last = Instant::now(),
                Err(EAGAIN) => std::thread::sleep(Duration::from_millis(2)),
                Err(e) => panic!("filling at byte {}: {e:?}", self.at),
            }
        }
        (self.at - start) as usize
    }
}

impl Rx {
    /// Takes bytes that a call delivered, and panics unless they are the stream's next ones.
    pub fn arrived(&mut self, bytes: &[u8]) {
        self.peeked(bytes);
        self.at += bytes.len() as u64;
    }

    /// As [`Rx::arrived`], without advancing.
    pub fn peeked(&self, bytes: &[u8]) {
        if let Err(what) = self.pattern.check(self.at, bytes) {
            panic!("{what}");
        }
    }

    /// Advances past bytes that were discarded unseen.
    pub fn skipped(&mut self, n: usize) {
        self.at += n as u64;
    }

    /// One call for at most `n` bytes, checked.
    pub fn try_recv(&mut self, n: usize, call: Recv) -> Outcome {
        let mut buf = vec![0xee; n];
        let done = call(self.fd, &mut buf)?;
        assert!(done <= n, "a call gave {done} bytes though there was room for {n}");
        self.arrived(&buf[..done]);
        // read(2) does not promise to leave the rest of the buffer alone, but Linux does. So does the library, except in a call
        // during which the connection changes its carrier. Only flip mode does that all the time.
        let untouched = buf[done..].iter().all(|&b| b == 0xee);
        assert!(untouched || std::env::var_os("SIDESTEP_FLIP").is_some(), "a call wrote past the bytes it reports");
        Ok(done)
    }

    /// Receives exactly `n` bytes with as many calls as it takes.
    pub fn recv_by(&mut self, n: usize, call: Recv) {
        let goal = self.at + n as u64;
        while self.at < goal {
            match self.try_recv(((goal - self.at) as usize).min(1 << 18), call) {
                Ok(0) => panic!("end of stream at byte {}, expected {goal}", self.at),
                Ok(_) | Err(EINTR) => {}
                Err(EAGAIN) => drop(poll::events_of(self.fd, libc::POLLIN, -1)),
                Err(e) => panic!("receiving at byte {}, expected {goal}: {e:?}", self.at),
            }
        }
    }

    pub fn recv(&mut self, n: usize) {
        self.recv_by(n, |fd, buf| io::recv(fd, buf, 0));
    }

    /// Receives until the end of the stream; returns how many bytes came before it.
    pub fn drain_by(&mut self, most: usize, call: Recv) -> u64 {
        let start = self.at;
        loop {
            match self.try_recv(most, call) {
                Ok(0) => return self.at - start,
                Ok(_) | Err(EINTR) => {}
                Err(EAGAIN) => drop(poll::events_of(self.fd, libc::POLLIN, -1)),
                Err(e) => panic!("draining at byte {}: {e:?}", self.at),
            }
        }
    }

    /// Receives until the end of the stream or an error. Returns the number of bytes, and leaves the error to the next call.
    pub fn whole(&mut self) -> u64 {
        let start = self.at;
        while poll::events_of(self.fd, libc::POLLIN, -1) & libc::POLLERR == 0 || fds::unread(self.fd) > 0 {
            if self.try_recv(1 << 16, |fd, buf| io::recv(fd, buf, 0)).expect("no error while there are bytes") == 0 {
                break;
            }
        }
        self.at - start
    }

    pub fn drain(&mut self) -> u64 {
        self.drain_by(1 << 16, |fd, buf| io::recv(fd, buf, 0))
    }

    /// Reads until EAGAIN with room for `most` bytes, as edge-triggering requires. Returns the number of bytes.
    pub fn drain_now(&mut self, most: usize) -> usize {
        let start = self.at;
        loop {
            match self.try_recv(most, |fd, buf| io::recv(fd, buf, libc::MSG_DONTWAIT)) {
                Ok(0) => panic!("the stream ended at byte {}", self.at),
                Ok(_) | Err(EINTR) => {}
                Err(EAGAIN) => return (self.at - start) as usize,
                Err(e) => panic!("draining at byte {}: {e:?}", self.at),
            }
        }
    }

    /// Waits for the end of the stream or an error; no byte may come before it.
    pub fn ending(&mut self) -> Result<(), Errno> {
        let mut byte = [0];
        match io::recv(self.fd, &mut byte, 0) {
            Ok(0) => Ok(()),
            Ok(_) => panic!("a byte came at {} where the stream should end", self.at),
            Err(e) => Err(e),
        }
    }

    pub fn expect_eof(&mut self) {
        assert_eq!(self.ending(), Ok(()), "expected the end of the stream at byte {}", self.at);
    }

    /// Waits until at least `n` bytes can be read.
    pub fn await_bytes(&self, n: usize) {
        crate::sys::cpu::eventually("the bytes arrive", || fds::unread(self.fd) >= n as i32);
    }
}

impl End {
    pub fn new(fd: Fd, side: Side) -> End {
        End::numbered(fd, side, 0)
    }

    /// Connections of one case have different numbers, and so different streams.
    pub fn numbered(fd: Fd, side: Side, number: u64) -> End {
        let streams = [number * 2 + 1, number * 2 + 2].map(Pattern::new);
        let (out, into) = if side == Side::Client { (0, 1) } else { (1, 0) };
        End { tx: Tx { fd, pattern: streams[out], at: 0 }, rx: Rx { fd, pattern: streams[into], at: 0 } }
    }

    pub fn fd(&self) -> Fd {
        self.tx.fd
    }

    /// The connection continues under another descriptor.
    pub fn moved_to(&mut self, fd: Fd) {
        self.tx.fd = fd;
        self.rx.fd = fd;
    }

    pub fn send(&mut self, n: usize) {
        self.tx.send(n);
    }

    pub fn recv(&mut self, n: usize) {
        self.rx.recv(n);
    }

    pub fn close(&self) {
        assert_eq!(fds::close(self.fd()), Ok(0), "close");
    }
}
