//! How the main thread and a receiver thread reach each other. Each wakes the other by an eventfd, when it has nothing
//! more to say for now, and once for any number of messages that have not been looked at.

use super::message::{Command, Event};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::mpsc;

/// The other thread is gone, or says nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Over;

/// Tries at a write that wakes somebody.
const TRIES: usize = 4;

/// Wakes who reads the messages. It is watched by edge: each ring is heard once, and nothing has to be read, which could fail.
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
        // What can only fail for a moment. If it does all the same, the next message wakes the reader for both.
        if !self.rung.swap(true, SeqCst) && (0..TRIES).all(|_| write().is_err()) {
            self.rung.store(false, SeqCst);
        }
    }

    /// Before a look at what there is.
    fn answer(&self) {
        self.rung.store(false, SeqCst);
    }
}

/// The main thread's end for commands. The thread ends when the last one is gone.
#[derive(Debug)]
pub struct Mailbox {
    /// None only while it is dropped.
    commands: Option<mpsc::Sender<Command>>,
    /// Of a command the thread has not been told that it is there.
    untold: AtomicBool,
    doorbell: Arc<Doorbell>,
}

impl Mailbox {
    /// Never waits; [`Mailbox::wake`] must follow. How much there can be is limited by what the domain may have.
    pub fn send(&self, command: Command) {
        let Some(commands) = &self.commands else { return };
        match commands.send(command) {
            Ok(()) => self.untold.store(true, Relaxed),
            // The thread is gone, which it never is before its mailbox. What it would close is not closed here.
            Err(unheard) => std::mem::forget(unheard),
        }
    }

    /// Has the thread look, if there is something new.
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
    /// None: nothing at the moment.
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

/// Events that the main thread has not looked at: then the receiver waits.
const UNSEEN: usize = 256;

/// The receiver's end for events.
pub struct Reports {
    events: mpsc::SyncSender<Event>,
    /// Of an event the main thread has not been told that it is there.
    untold: Cell<bool>,
    doorbell: Arc<Doorbell>,
}

impl Reports {
    /// Waits for the main thread, which never waits for a receiver; [`Reports::wake`] must follow.
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

    /// Has the main thread look, if there is something new.
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

    /// Before a look at what there is.
    pub fn answer(&self) {
        self.doorbell.answer();
    }

    /// There may be more than was looked at.
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
