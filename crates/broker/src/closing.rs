//! Closing other processes' sockets that linger.
//!
//! If a program has closed its socket while this process holds it, the close of this process is the last one. It takes as long as
//! the program's own would have taken (SO_LINGER). That is no attack, and must not delay others. So a few threads close such sockets.

use crate::raw::sock;
use rustix::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

/// Closes sockets.
#[derive(Default)]
pub struct Closing {
    /// One is started when a socket lingers and no other is idle.
    closers: Vec<Closer>,
}

/// A thread that closes, one socket after the other.
struct Closer {
    sockets: Sender<Box<dyn Send>>,
    closed: Receiver<()>,
    /// Number of sockets that it has not closed yet.
    due: usize,
}

/// Most threads. Beyond them sockets wait for their turn.
const MOST: usize = 128;
/// Most threads of all domains. Beyond them a domain that has none gets one.
const MOST_OF_ALL: usize = 512;
/// Number of threads of all domains.
static THREADS: AtomicUsize = AtomicUsize::new(0);
/// Small: the thread only closes.
const STACK: usize = 64 * 1024;
/// A close takes longer than this only if the program has closed the socket before, and its peer does not take what it has sent.
const BRIEF: Duration = Duration::from_millis(20);

impl Closing {
    /// No thread yet.
    pub fn new() -> Closing {
        Closing::default()
    }

    fn may_have_another(&self) -> bool {
        self.closers.is_empty() || (self.closers.len() < MOST && THREADS.load(Relaxed) < MOST_OF_ALL)
    }

    /// Whether sockets are not closed yet.
    pub fn is_busy(&mut self) -> bool {
        self.closers.iter_mut().for_each(Closer::look);
        self.closers.iter().any(|closer| closer.due > 0)
    }

    /// Closes a socket. False: it lingers, and will be closed some time later.
    pub fn close(&mut self, socket: impl AsFd + Send + 'static) -> bool {
        if sock::linger_seconds(socket.as_fd()).unwrap_or(0) == 0 {
            return true;
        }
        self.closers.iter_mut().for_each(Closer::look);
        if self.closers.iter().all(|closer| closer.due > 0) && self.may_have_another() {
            self.closers.push(start());
        }
        let idlest = self.closers.iter_mut().min_by_key(|closer| closer.due).expect("there is one at least");
        idlest.close(Box::new(socket))
    }
}

impl Closer {
    /// Notes what it has closed meanwhile.
    fn look(&mut self) {
        self.due -= self.closed.try_iter().count();
    }

    /// Whether the socket is closed.
    fn close(&mut self, socket: Box<dyn Send>) -> bool {
        // Without the thread, dropping the error closes the socket here.
        if self.sockets.send(socket).is_err() {
            return true;
        }
        self.due += 1;
        if self.due > 1 {
            return false;
        }
        let is_closed = self.closed.recv_timeout(BRIEF) != Err(RecvTimeoutError::Timeout);
        self.due -= usize::from(is_closed);
        is_closed
    }
}

/// Starts a thread, which ends with the sender. If it cannot be started, the channel has no receiver.
fn start() -> Closer {
    let (sockets, to_close) = mpsc::channel::<Box<dyn Send>>();
    let (done, closed) = mpsc::channel();
    let close_all = move || {
        for socket in to_close {
            drop(socket);
            let _ = done.send(()); // nobody may wait for it any more
        }
        THREADS.fetch_sub(1, Relaxed);
    };
    THREADS.fetch_add(1, Relaxed);
    if std::thread::Builder::new().name("linger".into()).stack_size(STACK).spawn(close_all).is_err() {
        THREADS.fetch_sub(1, Relaxed);
    }
    Closer { sockets, closed, due: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::time::Instant;

    const LINGER: Duration = Duration::from_secs(60);

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let near = TcpStream::connect(listener.local_addr().expect("an address")).expect("connect");
        rustix::net::sockopt::set_socket_linger(&near, Some(LINGER)).expect("SO_LINGER");
        (near, listener.accept().expect("accept").0)
    }

    /// Number of sockets that are not closed yet.
    fn due(closing: &mut Closing) -> usize {
        closing.closers.iter_mut().for_each(Closer::look);
        closing.closers.iter().map(|closer| closer.due).sum()
    }

    /// Nobody reads, so the last close of a full socket lingers. Others are closed meanwhile, whether a program still has them or not.
    #[test]
    fn a_socket_that_lingers_does_not_delay_others() {
        let (mut full, _reader) = pair();
        full.set_nonblocking(true).expect("O_NONBLOCK");
        while full.write(&[0; 65536]).is_ok() {}
        let (mut closing, began) = (Closing::new(), Instant::now());
        assert!(!closing.close(full), "it lingers");
        for _ in 0..2 * MOST {
            let (near, _far) = pair();
            let programs = near.try_clone().expect("a copy");
            closing.close(near); // a program still has it
            closing.close(programs); // nothing has to be sent
        }
        assert!(closing.closers.len() < MOST, "one does for all, if the machine is not too busy");
        while due(&mut closing) > 1 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(began.elapsed() < LINGER / 2, "{:?}", began.elapsed());
        assert!(closing.is_busy(), "the full one still lingers");
    }
}
