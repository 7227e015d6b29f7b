//! Closing other processes' sockets that linger.
//!
//! If a program has closed its socket while this process holds it, the close of this process is the last one. It takes as long as
//! the program's own would have taken (SO_LINGER). That is no attack, and must not delay others. So a second thread closes such
//! sockets, one after the other.

use crate::raw::sock;
use rustix::fd::AsFd;
use std::sync::mpsc;

/// Sockets that are to be closed.
pub struct Closing {
    /// None: no socket has had to linger yet.
    thread: Option<mpsc::Sender<Box<dyn Send>>>,
}

/// Small: the thread only closes.
const STACK: usize = 64 * 1024;

impl Default for Closing {
    fn default() -> Closing {
        Closing::new()
    }
}

impl Closing {
    /// The thread starts with the first socket that lingers.
    pub fn new() -> Closing {
        Closing { thread: None }
    }

    /// Closes a socket, now or soon.
    pub fn close(&mut self, socket: impl AsFd + Send + 'static) {
        if sock::linger_seconds(socket.as_fd()).unwrap_or(0) == 0 {
            return;
        }
        let thread = self.thread.get_or_insert_with(start);
        // Without the thread, dropping the error closes the socket here.
        let _ = thread.send(Box::new(socket));
    }
}

/// Starts the thread, which ends with the last sender. If it cannot be started, the channel has no receiver.
fn start() -> mpsc::Sender<Box<dyn Send>> {
    let (sender, sockets) = mpsc::channel::<Box<dyn Send>>();
    let close_all = move || sockets.into_iter().for_each(drop);
    let _ = std::thread::Builder::new().name("linger".into()).stack_size(STACK).spawn(close_all);
    sender
}
