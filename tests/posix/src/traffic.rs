//! Traffic with pseudo-random sizes, pauses and calls.

use crate::end::{End, Recv, Rx, Send, Tx};
use crate::rng::Rng;
use crate::sys::errno::{EAGAIN, EINTR};
use crate::sys::{epoll, fds, io, poll};
use crate::ways::{receiving, sending};

fn random_send(rng: &mut Rng) -> Send {
    rng.pick(&sending::ALL[..sending::PLAIN]).1
}

fn random_recv(rng: &mut Rng) -> Recv {
    rng.pick(&receiving::ALL[..receiving::PLAIN]).1
}

/// Sends `n` bytes in pieces of up to `most`.
pub fn send_mixed(tx: &mut Tx, n: u64, most: u64, seed: u64) {
    let mut rng = Rng::new(seed);
    let goal = tx.at + n;
    while tx.at < goal {
        let size = rng.size(most).min((goal - tx.at) as usize);
        tx.send_by(size, random_send(&mut rng));
        rng.pause();
    }
}

/// Receives `n` bytes by calls with room for up to `most`.
pub fn recv_mixed(rx: &mut Rx, n: u64, most: u64, seed: u64) {
    let mut rng = Rng::new(seed);
    let goal = rx.at + n;
    while rx.at < goal {
        let size = rng.size(most).min((goal - rx.at) as usize);
        match rx.try_recv(size, random_recv(&mut rng)) {
            Ok(0) => panic!("end of stream at byte {}, expected {goal}", rx.at),
            Ok(_) | Err(EINTR) => rng.pause(),
            Err(EAGAIN) => drop(poll::events_of(rx.fd, libc::POLLIN, -1)),
            Err(e) => panic!("receiving at byte {}: {e:?}", rx.at),
        }
    }
}

/// Sends and receives at the same time, in two threads.
pub fn both_ways(end: &mut End, send: u64, recv: u64, most: u64, seed: u64) {
    let End { tx, rx } = end;
    std::thread::scope(|s| {
        s.spawn(|| send_mixed(tx, send, most, seed));
        recv_mixed(rx, recv, most, seed ^ 0xabcd);
    });
}

/// How a process waits before it reads.
pub const BLOCKING: u64 = 0;
pub const POLL: u64 = 1;
pub const EPOLL_LEVEL: u64 = 2;
pub const EPOLL_EDGE: u64 = 3;

/// Sends back as many bytes as came, until the end. Returns their number. Small random delays on both sides of the wait make
/// lost wake-ups likely.
pub fn echo_all(end: &mut End, how: u64, seed: u64) -> u64 {
    let mut wait = Waiter::new(end.fd(), how);
    let mut rng = Rng::new(seed);
    loop {
        let n = wait.recv_some(&mut end.rx, 4096);
        if n == 0 {
            return end.rx.at;
        }
        tiny_delay(&mut rng);
        end.send(n);
        tiny_delay(&mut rng);
    }
}

/// Spins for up to some microseconds: a sleep would be too coarse to hit a small window.
pub fn tiny_delay(rng: &mut Rng) {
    for _ in 0..rng.below(4) * rng.below(2000) {
        std::hint::spin_loop();
    }
}

/// Receives by one of the four ways to wait.
pub struct Waiter {
    how: u64,
    set: epoll::Epoll,
}

impl Waiter {
    pub fn new(fd: crate::sys::Fd, how: u64) -> Waiter {
        let set = epoll::Epoll::new();
        fds::set_nonblocking(fd, how != BLOCKING);
        match how {
            EPOLL_LEVEL => set.add(fd, epoll::IN),
            EPOLL_EDGE => set.add(fd, epoll::IN | epoll::ET),
            _ => {}
        }
        Waiter { how, set }
    }

    /// At least one byte, or 0 at the end of the stream.
    pub fn recv_some(&mut self, rx: &mut Rx, most: usize) -> usize {
        loop {
            match rx.try_recv(most, |fd, buf| io::recv(fd, buf, 0)) {
                Ok(n) => return n,
                Err(EINTR) => {}
                Err(EAGAIN) => self.sleep(rx.fd),
                Err(e) => panic!("receiving at byte {}: {e:?}", rx.at),
            }
        }
    }

    fn sleep(&mut self, fd: crate::sys::Fd) {
        match self.how {
            POLL => drop(poll::events_of(fd, libc::POLLIN, -1)),
            EPOLL_LEVEL | EPOLL_EDGE => assert_eq!(self.set.wait(-1).len(), 1),
            _ => panic!("a blocking socket said EAGAIN"),
        }
    }
}

/// A checksum of bytes in which their order counts (FNV-1a), continued from `sum`.
pub fn checksum(sum: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(sum, |sum, &b| (sum ^ u64::from(b)).wrapping_mul(0x100_0000_01b3).wrapping_add(1))
}

/// Reads exactly `n` bytes of whatever stream and sums them.
pub fn checksum_of(fd: crate::sys::Fd, n: u64) -> u64 {
    let (mut sum, mut left) = (0, n);
    let mut buf = [0; 30_000];
    while left > 0 {
        let got = io::read(fd, &mut buf[..left.min(30_000) as usize]).expect("read");
        assert!(got > 0, "{left} bytes are missing at the end");
        sum = checksum(sum, &buf[..got]);
        left -= got as u64;
    }
    sum
}

static FAREWELL: std::sync::OnceLock<(crate::sys::Fd, Vec<u8>)> = std::sync::OnceLock::new();

extern "C" fn say_farewell() {
    let (fd, bytes) = FAREWELL.get().expect("set before the handler");
    assert_eq!(io::write(*fd, bytes), Ok(bytes.len()));
}

/// Makes an exit handler write the next `n` bytes of the stream.
pub fn send_at_exit(end: &mut End, n: usize) {
    FAREWELL.set((end.fd(), end.tx.upcoming(n))).expect("one farewell a process");
    end.tx.sent(n);
    // SAFETY: the handler uses nothing that is gone at exit.
    assert_eq!(unsafe { libc::atexit(say_farewell) }, 0);
}
