//! One connection to a socket of the broker: a member, an operator, or somebody who has not said yet.

use crate::domain::Scope;
use crate::outbox::Outbox;
use crate::quota::Permit;
use crate::raw::mem::PageMem;
use crate::receiver::loan::Loan;
use crate::room::Room;
use crate::wire::Sender;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io;
use sidestep_abi::env::RING_SIZES;
use sidestep_ring::page;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The epoll instance. What is in it is registered under a number.
pub struct Poller(pub OwnedFd);

impl Poller {
    /// Smaller numbers are for what is not a connection.
    pub const FIRST_FREE: u64 = 16;

    /// Tells when it becomes readable, under this number.
    pub fn add(&self, fd: impl AsFd, id: u64) -> io::Result<()> {
        epoll::add(&self.0, fd, EventData::new_u64(id), EventFlags::IN)
    }

    /// Tells of each time that it becomes readable.
    pub fn add_by_edge(&self, fd: impl AsFd, id: u64) -> io::Result<()> {
        epoll::add(&self.0, fd, EventData::new_u64(id), EventFlags::IN | EventFlags::ET)
    }

    /// Tells only of its end, which nobody has to ask for.
    pub fn add_for_its_end(&self, fd: impl AsFd, id: u64) -> io::Result<()> {
        epoll::add(&self.0, fd, EventData::new_u64(id), EventFlags::empty())
    }

    fn ask_for_room(&self, fd: impl AsFd, id: u64, ask: bool) -> io::Result<()> {
        let flags = if ask { EventFlags::OUT } else { EventFlags::empty() };
        epoll::modify(&self.0, fd, EventData::new_u64(id), flags)
    }

    /// Tells nothing of it any more.
    pub fn remove(&self, fd: impl AsFd) {
        // It was added.
        let _ = epoll::delete(&self.0, fd);
    }
}

pub struct Conn {
    pub socket: Loan,
    /// Whose receiver reads from it.
    pub scope: Scope,
    /// Who connected.
    pub peer: Sender,
    pub outbox: Outbox,
    pub role: Role,
    /// The receiver has been told to read nothing: the outbox is full.
    pub unheard: bool,
    /// The poller tells when the socket takes records again.
    asks_for_room: bool,
    pub talk: Talk,
    /// A slot of this member was changed: its page says so at the next flush.
    pub touched: bool,
}

/// How long who connected is heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Talk {
    Open,
    /// Turned away: to be closed once the outbox is empty.
    Closing,
    /// It broke the protocol.
    Violated,
}

pub enum Role {
    New,
    Member(Box<Member>),
    /// Somebody who only wants the broker to stay.
    Waiting,
    /// At the operator's socket.
    Operator,
}

pub struct Member {
    pub pid: u32,
    pub exe: String,
    pub page: PageMem,
    /// Bytes, a power of two within bounds.
    pub ring_size: u32,
    /// Detached.
    pub hold: bool,
    /// By place: the eventfd by which the broker rings there.
    pub doorbells: BTreeMap<usize, Loan>,
    pub links: BTreeSet<u32>,
    /// Eventfds in its doorbells that its receiver is to make.
    pub ringers_due: usize,
    /// What its peers may take of it.
    pub room: Room,
    /// Of the page.
    _mapping: Permit,
}

impl Conn {
    pub fn new(socket: Loan, scope: Scope, peer: Sender, role: Role) -> Conn {
        let outbox = Outbox::default();
        Conn {
            socket,
            scope,
            peer,
            outbox,
            role,
            unheard: false,
            asks_for_room: false,
            talk: Talk::Open,
            touched: false,
        }
    }

    /// Tells the member that there is something to look at.
    pub fn announce(&self) {
        if let Role::Member(member) = &self.role {
            page::announce(member.page.get());
        }
    }

    /// After a flush: whether the socket is to tell when it takes more.
    pub fn ask_for_room(&mut self, poller: &Poller, id: u64) -> io::Result<()> {
        let ask = !self.outbox.is_empty();
        if ask != self.asks_for_room {
            poller.ask_for_room(&self.socket, id, ask)?;
            self.asks_for_room = ask;
        }
        Ok(())
    }
}

/// Tries at a doorbell: what fails for a moment must not leave a member asleep.
const TRIES: usize = 4;

impl Member {
    pub fn new(pid: u32, page_mem: PageMem, mapping: Permit, wished_ring: u64, room: Room, hold: bool) -> Member {
        let member = Member {
            pid,
            exe: exe_of(pid),
            page: page_mem,
            ring_size: usable_ring_size(wished_ring),
            hold,
            doorbells: BTreeMap::new(),
            links: BTreeSet::new(),
            ringers_due: 0,
            room,
            _mapping: mapping,
        };
        page::init(member.page.get(), hold);
        member
    }

    /// Places with a doorbell, as a bitmap.
    pub fn places(&self) -> u64 {
        self.doorbells.keys().fold(0, |mask, &place| mask | 1 << place)
    }

    /// Wakes a thread that sleeps there. The write cannot block: no other process has this eventfd, and its count stays far
    /// below the limit.
    pub fn ring(&self, place: usize) {
        if let Some(doorbell) = self.doorbells.get(&place) {
            // If all tries fail, the peer or the kernel wakes the sleeper.
            let _ = (0..TRIES).any(|_| io::write(doorbell, &1u64.to_ne_bytes()).is_ok());
        }
    }
}

fn usable_ring_size(wished: u64) -> u32 {
    let within = wished.clamp(u64::from(*RING_SIZES.start()), u64::from(*RING_SIZES.end()));
    (within as u32).next_power_of_two()
}

fn exe_of(pid: u32) -> String {
    let link = std::fs::read_link(format!("/proc/{pid}/exe"));
    link.map_or_else(|_| "?".into(), |path| printable(&path))
}

/// The operator reads it on a terminal, and whoever runs the program has named it.
fn printable(path: &Path) -> String {
    path.to_string_lossy().replace(char::is_control, "?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_s_name_commands_no_terminal() {
        assert_eq!(printable(Path::new("/tmp/\x1b]0;owned\x07\u{9b}31m é\n")), "/tmp/?]0;owned??31m é?");
    }

    #[test]
    fn ring_sizes_are_powers_of_two_within_bounds() {
        assert_eq!(usable_ring_size(0), *RING_SIZES.start());
        assert_eq!(usable_ring_size(u64::MAX), *RING_SIZES.end());
        assert_eq!(usable_ring_size(5000), 8192);
        assert_eq!(usable_ring_size(65536), 65536);
    }
}
