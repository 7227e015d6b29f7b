//! One connection to a socket of the broker: of a member, of an operator, or of a process that has not sent a record yet.

use crate::cgroup::Place;
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
use sidestep_abi::VERSION;
use sidestep_abi::env::RING_SIZES;
use sidestep_abi::msg::Msg;
use sidestep_ring::page;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// The epoll instance. Everything in it is registered under a number.
pub struct Poller(pub OwnedFd);

impl Poller {
    /// Numbers below this one are not connections.
    pub const FIRST_FREE: u64 = 16;

    /// Reports `fd`, level-triggered, under this number when it is readable.
    pub fn add(&self, fd: impl AsFd, id: u64) -> io::Result<()> {
        epoll::add(&self.0, fd, EventData::new_u64(id), EventFlags::IN)
    }

    /// Reports `fd`, edge-triggered, each time it becomes readable.
    pub fn add_by_edge(&self, fd: impl AsFd, id: u64) -> io::Result<()> {
        epoll::add(&self.0, fd, EventData::new_u64(id), EventFlags::IN | EventFlags::ET)
    }

    /// Reports only hang-ups and errors of `fd`, which epoll always reports.
    pub fn add_for_its_end(&self, fd: impl AsFd, id: u64) -> io::Result<()> {
        epoll::add(&self.0, fd, EventData::new_u64(id), EventFlags::empty())
    }

    fn ask_for_room(&self, fd: impl AsFd, id: u64, ask: bool) -> io::Result<()> {
        let flags = if ask { EventFlags::OUT } else { EventFlags::empty() };
        epoll::modify(&self.0, fd, EventData::new_u64(id), flags)
    }

    /// Reports nothing of `fd` any more.
    pub fn remove(&self, fd: impl AsFd) {
        // It is registered, so this cannot fail.
        let _ = epoll::delete(&self.0, fd);
    }
}

pub struct Conn {
    pub socket: Loan,
    /// The receiver thread with this scope reads from the socket.
    pub scope: Scope,
    /// Credentials of the process that connected.
    pub peer: Sender,
    /// Where that process ran when it connected, if that matters.
    pub place: Arc<Place>,
    /// Of the protocol, as the process speaks it.
    pub version: u32,
    pub outbox: Outbox,
    pub role: Role,
    /// The receiver reads nothing from this connection for now, because the outbox is full or the connection is being closed.
    pub unheard: bool,
    /// The poller reports when the socket takes records again.
    asks_for_room: bool,
    pub talk: Talk,
    /// A slot of this member was changed: the next flush announces that in the member's page.
    pub touched: bool,
}

/// How long records of the connection are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Talk {
    Open,
    /// Turned away: the connection is closed once its outbox is empty.
    Closing,
    /// The process violated the protocol.
    Violated,
}

pub enum Role {
    New,
    Member(Box<Member>),
    /// A process that only wants the broker to stay.
    Waiting,
    /// Connected to the operator's socket.
    Operator,
}

pub struct Member {
    pub pid: u32,
    pub exe: String,
    pub page: PageMem,
    /// In bytes, a power of two within bounds.
    pub ring_size: u32,
    /// The process is detached.
    pub hold: bool,
    /// By place (number of a waiter): the eventfd with which the broker rings that doorbell.
    pub doorbells: BTreeMap<usize, Loan>,
    pub links: BTreeSet<u32>,
    /// Number of eventfds in this member's doorbells that its receiver is still to make.
    pub ringers_due: usize,
    /// How much of the member's tables its peers may take.
    pub room: Room,
    /// Quota for the mapping of the page.
    _mapping: Permit,
}

impl Conn {
    pub fn new(socket: Loan, scope: Scope, (peer, place): (Sender, Arc<Place>), role: Role) -> Conn {
        let outbox = Outbox::default();
        Conn {
            socket,
            scope,
            peer,
            place,
            version: VERSION,
            outbox,
            role,
            unheard: false,
            asks_for_room: false,
            talk: Talk::Open,
            touched: false,
        }
    }

    /// Makes the member look at its slots and messages.
    pub fn announce(&self) {
        if let Role::Member(member) = &self.role {
            page::announce(member.page.get());
        }
    }

    /// After a flush: registers for a report when the socket takes more, if that is needed. A socket with room would report that
    /// again and again while the kernel takes no descriptor.
    pub fn ask_for_room(&mut self, poller: &Poller, id: u64, is_starved: bool) -> io::Result<()> {
        let ask = !self.outbox.is_empty() && !is_starved;
        if ask != self.asks_for_room {
            poller.ask_for_room(&self.socket, id, ask)?;
            self.asks_for_room = ask;
        }
        Ok(())
    }
}

/// Tries of a ring: after a temporary failure the member would stay asleep.
const TRIES: usize = 4;

impl Member {
    /// `hello`: the process's first record.
    pub fn new(pid: u32, page_mem: PageMem, mapping: Permit, hello: &Msg, room: Room, hold: bool) -> Member {
        let member = Member {
            pid,
            exe: exe_of(pid),
            page: page_mem,
            ring_size: usable_ring_size(hello.arg),
            hold,
            doorbells: BTreeMap::new(),
            links: BTreeSet::new(),
            ringers_due: 0,
            room,
            _mapping: mapping,
        };
        page::init(member.page.get(), hello.version, hold);
        member
    }

    /// Bitmap of the places that have a doorbell.
    pub fn places(&self) -> u64 {
        self.doorbells.keys().fold(0, |mask, &place| mask | 1 << place)
    }

    /// Wakes a thread that sleeps there. The write cannot block: no other process has this eventfd, and its count stays far
    /// below the limit.
    pub fn ring(&self, place: usize) {
        if let Some(doorbell) = self.doorbells.get(&place) {
            // If all tries fail, the sleeper stays asleep until its peer or the kernel wakes it.
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

/// Most characters of a path that are kept. Linux permits 4,095 bytes, and a user may have thousands of processes.
const LONGEST_EXE: usize = 256;

/// Replaces control characters: the operator reads the path on a terminal, and the member's user has chosen it.
fn printable(path: &Path) -> String {
    path.to_string_lossy().chars().take(LONGEST_EXE).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    #[test]
    fn a_program_s_name_commands_no_terminal() {
        assert_eq!(printable(Path::new("/tmp/\x1b]0;owned\x07\u{9b}31m é\n")), "/tmp/?]0;owned??31m é?");
    }

    #[test]
    fn a_program_s_name_takes_little_memory() {
        // Each of these bytes is no UTF-8, and is shown by a character of three bytes.
        let long = std::ffi::OsString::from_vec(vec![0xff; 4095]);
        let shown = printable(Path::new(&long));
        assert_eq!((shown.chars().count(), shown.len()), (LONGEST_EXE, 3 * LONGEST_EXE));
        assert_eq!(printable(Path::new("/usr/bin/env")), "/usr/bin/env");
    }

    #[test]
    fn ring_sizes_are_powers_of_two_within_bounds() {
        assert_eq!(usable_ring_size(0), *RING_SIZES.start());
        assert_eq!(usable_ring_size(u64::MAX), *RING_SIZES.end());
        assert_eq!(usable_ring_size(5000), 8192);
        assert_eq!(usable_ring_size(65536), 65536);
    }
}
