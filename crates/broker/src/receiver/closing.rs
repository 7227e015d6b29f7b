//! The close of sockets that linger.
//!
//! If a program has closed its socket while we hold it, ours is the last close, and takes as long as the program's own would
//! have taken (SO_LINGER). That is no hostility, and must not keep the program's neighbours waiting: such sockets are closed
//! one after the other by a second thread of the domain.

use crate::raw::sock;
use rustix::fd::AsFd;
use std::sync::mpsc;

/// Sockets on their way to be closed.
pub struct Closing {
    /// None: no socket has had to linger yet.
    thread: Option<mpsc::Sender<Box<dyn Send>>>,
}

/// It only closes.
const STACK: usize = 64 * 1024;

impl Closing {
    pub fn new() -> Closing {
        Closing { thread: None }
    }

    pub fn close(&mut self, socket: impl AsFd + Send + 'static) {
        if sock::linger_seconds(socket.as_fd()).unwrap_or(0) == 0 {
            return;
        }
        let thread = self.thread.get_or_insert_with(start);
        // Without a thread it is closed here, as the error is dropped.
        let _ = thread.send(Box::new(socket));
    }
}

/// The thread ends with the last sender. If there is none to be had, nobody receives.
fn start() -> mpsc::Sender<Box<dyn Send>> {
    let (sender, sockets) = mpsc::channel::<Box<dyn Send>>();
    let close_all = move || sockets.into_iter().for_each(drop);
    let _ = std::thread::Builder::new().name("linger".into()).stack_size(STACK).spawn(close_all);
    sender
}
