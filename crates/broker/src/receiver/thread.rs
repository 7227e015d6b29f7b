//! The loop of a receiver.

use super::mailbox::{Commands, Over, Reports};
use super::message::{Command, Event};
use super::offers::Offers;
use super::rings::Rings;
use crate::counted::Counted;
use crate::memory::Hole;
use crate::netns::View;
use crate::quota::Account;
use crate::wire::{self, Incoming, Record};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::FallocateFlags;
use rustix::io::{self, Errno};
use rustix::time::Timespec;
use sidestep_abi::msg::Kind;
use sidestep_abi::speaks;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Most records of one connection before the others get their turn.
const TURN: usize = 64;
/// Most records in the queue of a connection, unless somebody goes on writing.
const QUEUED: usize = 1024;
/// How often a receiver looks whether its sockets that linger are closed.
const WHILE_CLOSING: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// Number of the commands in the epoll set. Connections have numbers from [`crate::broker::Poller::FIRST_FREE`] on.
const COMMANDS: u64 = 0;

/// What a receiver needs to run.
pub struct Parts {
    pub epoll: OwnedFd,
    pub commands: Commands,
    pub reports: Reports,
    /// Account for descriptors.
    pub account: Arc<Account>,
    /// Counts down as they are closed.
    pub turned_away: Arc<AtomicUsize>,
}

struct Thread {
    parts: Parts,
    readers: BTreeMap<u64, Arc<Counted>>,
    offers: Offers,
    rings: Rings,
}

/// Makes the epoll instance with the commands in it. It is made before the thread: a thread that could not hear commands would
/// block its domain for ever.
pub fn waits_for(commands: &Commands) -> io::Result<OwnedFd> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, commands, EventData::new_u64(COMMANDS), EventFlags::IN | EventFlags::ET)?;
    Ok(epoll)
}

pub fn run(parts: Parts, view: View) {
    let offers = Offers::new(parts.account.clone(), view);
    let rings = Rings::new(parts.account.clone());
    let mut thread = Thread { parts, readers: BTreeMap::new(), offers, rings };
    // On an error the main thread is ending, and so does this one.
    let _ = thread.serve();
}

impl Thread {
    fn serve(&mut self) -> Result<(), Over> {
        let mut events = Vec::with_capacity(64);
        loop {
            events.clear();
            let patience = if self.offers.is_closing() { Some(&WHILE_CLOSING) } else { None };
            match epoll::wait(&self.parts.epoll, rustix::buffer::spare_capacity(&mut events), patience) {
                Ok(_) | Err(Errno::INTR) => {}
                // The kernel lacks a resource for a moment; nothing can be done about that here.
                Err(_) => std::thread::yield_now(),
            }
            if events.is_empty() {
                self.tell_if_idle()?; // nothing else may come that would say so once all is closed
                self.parts.reports.wake();
            }
            // Commands first: a command about a connection must take effect before this read.
            if events.iter().any(|event| event.data.u64() == COMMANDS) {
                self.obey()?;
                self.parts.reports.wake();
            }
            for event in events.iter().filter(|event| event.data.u64() != COMMANDS) {
                self.read(event.data.u64())?;
                self.parts.reports.wake();
            }
        }
    }

    fn obey(&mut self) -> Result<(), Over> {
        self.parts.commands.answer();
        while let Some(command) = self.parts.commands.next()? {
            if let Some(answer) = self.execute(command) {
                self.parts.reports.send(answer)?;
            }
        }
        self.tell_if_idle()
    }

    /// Not while sockets are being closed: their threads belong to the domain, and count in no other receiver's.
    fn tell_if_idle(&mut self) -> Result<(), Over> {
        let holds_offers = !self.offers.is_empty() || self.offers.is_closing();
        if self.readers.is_empty() && !holds_offers && self.rings.is_empty() {
            self.parts.reports.send(Event::Idle)?;
        }
        Ok(())
    }

    /// Executes a command. Returns its answer, if there is one now.
    fn execute(&mut self, command: Command) -> Option<Event> {
        match command {
            Command::Admit { id, socket } => {
                self.readers.insert(id, socket);
                return self.listen(id, true);
            }
            Command::Listen { id, listen } => return self.listen(id, listen),
            Command::Dismiss { id } => self.dismiss(id),
            Command::Ringer(ringing) => return Some(Event::Ringer(ringing, self.rings.ringer(ringing))),
            Command::Unring { link, side, takes_out } => {
                return Some(Event::Unrung { link, side, ringers: self.rings.unring(link, side, takes_out) });
            }
            Command::Prove { ticket, socket, against } => return Some(self.offers.prove(ticket, socket, &against)),
            Command::LetGo(socket) => {
                self.offers.let_go(socket);
            }
            Command::Lend { ticket, socket } => return self.offers.lend(ticket, socket),
            Command::Recheck(claims) => return Some(self.offers.recheck(&claims)),
            Command::Answer { id, number } => return Some(Event::Answer { id, number }),
            Command::Punch(hole) => return Some(punch(&hole)),
            Command::Close(fd) => self.offers.close(fd),
            Command::CloseUnrung(ringers) => drop(ringers),
            Command::TurnAway(socket) => {
                self.empty(socket.as_fd());
                drop(socket);
                self.parts.turned_away.fetch_sub(1, SeqCst);
            }
            Command::Discard(event) => drop(event),
        }
        None
    }

    /// If a connection is not listened to, the main thread notices its end.
    fn listen(&mut self, id: u64, listen: bool) -> Option<Event> {
        let socket = self.readers.get(&id)?;
        if !listen {
            let _ = epoll::delete(&self.parts.epoll, &**socket); // after its end it is not in the set any more
            return None;
        }
        let added = epoll::add(&self.parts.epoll, &**socket, EventData::new_u64(id), EventFlags::IN);
        // No memory: the broker hangs up, so the process tries again later.
        added.is_err().then_some(Event::End { id })
    }

    fn dismiss(&mut self, id: u64) {
        self.listen(id, false);
        if let Some(socket) = self.readers.remove(&id) {
            self.empty(socket.as_fd());
        }
        self.offers.dismiss(id);
        self.rings.dismiss(id);
    }

    /// Closes the sockets in the queue of a connection that is to be closed. The close of the connection would close them, too, and wait
    /// here for those that linger.
    fn empty(&mut self, connection: BorrowedFd) {
        for _ in 0..QUEUED {
            match wire::receive(connection) {
                Incoming::Record(Record { fd: Some(fd), .. }) => self.close_counted(fd),
                Incoming::Record(_) | Incoming::Garbage { .. } => {}
                Incoming::Empty | Incoming::End => return,
            }
        }
    }

    /// Without room in the quota the descriptor is closed here.
    fn close_counted(&mut self, fd: OwnedFd) {
        if let Some(fd) = Counted::new(fd, &self.parts.account) {
            self.offers.close(fd);
        }
    }

    fn read(&mut self, id: u64) -> Result<(), Over> {
        let Some(socket) = self.readers.get(&id).cloned() else {
            return Ok(());
        };
        for _ in 0..TURN {
            let event = match wire::receive(socket.as_fd()) {
                Incoming::Record(record) => self.record(id, record),
                Incoming::Garbage { kind, version } => Some(Event::Garbage { id, kind, version }),
                Incoming::Empty => return Ok(()),
                Incoming::End => {
                    // The main thread will dismiss the connection. Until then there is nothing to read.
                    let _ = epoll::delete(&self.parts.epoll, &*socket);
                    return self.parts.reports.send(Event::End { id });
                }
            };
            event.map_or(Ok(()), |event| self.parts.reports.send(event))?;
        }
        Ok(())
    }

    /// Handles the descriptor of a record. None: nothing is to be reported.
    fn record(&mut self, id: u64, record: Record) -> Option<Event> {
        match record.msg.kind().filter(|_| speaks(record.msg.version)) {
            Some(Kind::Offer) => Some(self.offers.offered(id, record)),
            Some(Kind::Doorbell) => self.rings.doorbell(id, record),
            _ => Some(Event::Record { id, msg: record.msg }),
        }
    }
}

/// Gives memory back to the system. A member can block this, by holding the lock of the memory that it shares.
fn punch(hole: &Hole) -> Event {
    // After a failure the memory stays in use until the link goes.
    let _ =
        rustix::fs::fallocate(&hole.memory, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, hole.at, hole.len);
    Event::Punched { link: hole.link, slot: hole.slot }
}
