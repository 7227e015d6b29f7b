//! The channels between the main thread and a receiver thread. Each wakes the other by an eventfd, when it has nothing more to
//! send for now; once for any number of messages that have not been read.

use super::message::{Command, Event};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::mpsc;

/// The other thread has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Over;

/// Tries of a write that wakes the other thread.
const TRIES: usize = 4;

/// Wakes the reader of messages. It is watched by edge: each ring is reported once, and no read is necessary, which could fail.
#[derive(Debug)]
struct Doorbell {
    fd: OwnedFd,
    rung: AtomicBool,
}

impl Doorbell {
    fn new() -> io::Result<Doorbell> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Doorbell { fd, rung: AtomicBool::new(false) })
    }

    fn ring(&self) {
        let write = || rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        // The write can only fail for a moment. If all tries fail, the next message wakes the reader for both.
        if !self.rung.swap(true, SeqCst) && (0..TRIES).all(|_| write().is_err()) {
            self.rung.store(false, SeqCst);
        }
    }

    /// Called before the messages are read.
    fn answer(&self) {
        self.rung.store(false, SeqCst);
    }
}

/// The main thread's end for commands. The receiver ends when the last one is dropped.
#[derive(Debug)]
pub struct Mailbox {
    /// None only while it is being dropped.
    commands: Option<mpsc::Sender<Command>>,
    /// The receiver has not been woken for the last command yet.
    untold: AtomicBool,
    doorbell: Arc<Doorbell>,
}

impl Mailbox {
    /// Never blocks. [`Mailbox::wake`] must follow. The domain's quotas limit the number of commands.
    pub fn send(&self, command: Command) {
        let Some(commands) = &self.commands else { return };
        match commands.send(command) {
            Ok(()) => self.untold.store(true, Relaxed),
            // The receiver has ended, which never happens before its mailbox is dropped. The command is leaked, since dropping
            // it could close a descriptor in this thread.
            Err(unheard) => std::mem::forget(unheard),
        }
    }

    /// Wakes the receiver, if there are new commands.
    pub fn wake(&self) {
        if self.untold.load(Relaxed) {
            self.untold.store(false, Relaxed);
            self.doorbell.ring();
        }
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        self.commands = None;
        self.doorbell.ring();
    }
}

/// The receiver's end for commands.
pub struct Commands {
    commands: mpsc::Receiver<Command>,
    doorbell: Arc<Doorbell>,
}

impl Commands {
    /// None: there is no command now.
    pub fn next(&self) -> Result<Option<Command>, Over> {
        match self.commands.try_recv() {
            Ok(command) => Ok(Some(command)),
            Err(mpsc::TryRecvError::Empty) => Ok(None),
            Err(mpsc::TryRecvError::Disconnected) => Err(Over),
        }
    }

    pub fn answer(&self) {
        self.doorbell.answer();
    }
}

impl AsFd for Commands {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.doorbell.fd.as_fd()
    }
}

pub fn commands() -> io::Result<(Mailbox, Commands)> {
    let (sender, commands) = mpsc::channel();
    let doorbell = Arc::new(Doorbell::new()?);
    let mailbox = Mailbox { commands: Some(sender), untold: AtomicBool::new(false), doorbell: doorbell.clone() };
    Ok((mailbox, Commands { commands, doorbell }))
}

/// Most events that the main thread has not read; then the receiver blocks.
const UNSEEN: usize = 256;

/// The receiver's end for events.
pub struct Reports {
    events: mpsc::SyncSender<Event>,
    /// The main thread has not been woken for the last event yet.
    untold: Cell<bool>,
    doorbell: Arc<Doorbell>,
}

impl Reports {
    /// Blocks while the main thread has [`UNSEEN`] events to read; the main thread never waits for a receiver.
    /// [`Reports::wake`] must follow.
    pub fn send(&self, event: Event) -> Result<(), Over> {
        self.untold.set(true);
        match self.events.try_send(event) {
            Err(mpsc::TrySendError::Full(event)) => {
                self.wake();
                self.untold.set(true);
                self.events.send(event).map_err(|_| Over)
            }
            other => other.map_err(|_| Over),
        }
    }

    /// Wakes the main thread, if there are new events.
    pub fn wake(&self) {
        if self.untold.replace(false) {
            self.doorbell.ring();
        }
    }
}

/// The main thread's end for events.
pub struct News {
    events: mpsc::Receiver<Event>,
    doorbell: Arc<Doorbell>,
}

impl News {
    pub fn next(&self) -> Option<Event> {
        self.events.try_recv().ok()
    }

    /// Called before the events are read.
    pub fn answer(&self) {
        self.doorbell.answer();
    }

    /// Wakes the main thread again: there may be more events than it has read.
    pub fn again(&self) {
        self.doorbell.ring();
    }
}

impl AsFd for News {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.doorbell.fd.as_fd()
    }
}

pub fn reports() -> io::Result<(Reports, News)> {
    let (sender, events) = mpsc::sync_channel(UNSEEN);
    let doorbell = Arc::new(Doorbell::new()?);
    Ok((Reports { events: sender, untold: Cell::new(false), doorbell: doorbell.clone() }, News { events, doorbell }))
}
