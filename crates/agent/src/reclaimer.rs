//! Reconnects or aborts connected UDP sockets whose backend has gone. This happens on a thread of its own: a round visits every
//! network namespace, and the tables must not wait for that.

use crate::message::Message;
use sidestep_ebpf::reclaim;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

/// A program that had found the backend just before it went may still be connecting. After this time it has connected, and a
/// second round finds its socket.
const STRAGGLERS: Duration = Duration::from_secs(1);

/// Requests rounds.
pub struct Reclaimer(SyncSender<()>);

impl Reclaimer {
    pub fn start(pins: PathBuf, inbox: Sender<Message>) -> Reclaimer {
        // One round serves all requests before its beginning.
        let (sender, asked) = sync_channel(1);
        std::thread::spawn(move || serve(&pins, &asked, &inbox));
        Reclaimer(sender)
    }

    pub fn ask(&self) {
        match self.0.try_send(()) {
            Ok(()) | Err(TrySendError::Full(())) => {}
            Err(TrySendError::Disconnected(())) => unreachable!("the thread serves as long as this handle exists"),
        }
    }
}

fn serve(pins: &Path, asked: &Receiver<()>, inbox: &Sender<Message>) {
    // An earlier agent may have aborted sockets.
    let mut some_wait = true;
    while asked.recv().is_ok() {
        for pause in [Duration::ZERO, STRAGGLERS] {
            std::thread::sleep(pause);
            let done = reclaim::run(pins, some_wait);
            if let Ok(done) = &done {
                some_wait = done.waiting > 0;
            }
            if inbox.send(Message::Reclaimed(done)).is_err() {
                return;
            }
        }
    }
}
