//! One connection to the broker's socket: a member, a command, or somebody who has not said yet.

use crate::outbox::Outbox;
use crate::raw::mem::PageMem;
use crate::wire::Sender;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io;
use sidestep_abi::env::RING_SIZES;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// What the poller waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    pub read: bool,
    pub write: bool,
}

/// The epoll instance; each connection is registered under its number.
pub struct Poller(pub OwnedFd);

impl Poller {
    /// Smaller numbers are for what is not a connection.
    pub const FIRST_FREE: u64 = 16;

    pub fn add(&self, fd: impl AsFd, id: u64) -> io::Result<()> {
        epoll::add(&self.0, fd, EventData::new_u64(id), EventFlags::IN)
    }

    fn modify(&self, fd: impl AsFd, id: u64, interest: Interest) -> io::Result<()> {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, interest.read);
        flags.set(EventFlags::OUT, interest.write);
        epoll::modify(&self.0, fd, EventData::new_u64(id), flags)
    }
}

pub struct Conn {
    pub socket: OwnedFd,
    /// Who connected.
    pub peer: Sender,
    pub outbox: Outbox,
    pub role: Role,
    pub interest: Interest,
    /// To be closed once the outbox is empty.
    pub closing: bool,
    /// A slot of this member was changed: its page says so at the next flush.
    pub touched: bool,
}

pub enum Role {
    New,
    Member(Box<Member>),
    Command,
}

pub struct Member {
    pub pid: u32,
    pub exe: String,
    pub page: PageMem,
    /// Bytes, a power of two within bounds.
    pub ring_size: u32,
    /// Detached.
    pub hold: bool,
    pub bells: BTreeMap<usize, Rc<OwnedFd>>,
    pub links: BTreeSet<u32>,
}

impl Conn {
    pub fn new(socket: OwnedFd, peer: Sender) -> Conn {
        let interest = Interest { read: true, write: false };
        Conn { socket, peer, outbox: Outbox::default(), role: Role::New, interest, closing: false, touched: false }
    }

    /// Tells the member that there is something to look at.
    pub fn announce(&self) {
        if let Role::Member(member) = &self.role {
            // SYNC(pending): after the record is in the socket, or the slot is changed.
            member.page.get().pending.fetch_add(1, Release);
        }
    }

    pub fn update_interest(&mut self, poller: &Poller, id: u64) -> io::Result<()> {
        let interest = Interest { read: !self.outbox.is_full() && !self.closing, write: !self.outbox.is_empty() };
        if interest != self.interest {
            poller.modify(&self.socket, id, interest)?;
            self.interest = interest;
        }
        Ok(())
    }
}

impl Member {
    pub fn new(pid: u32, page: PageMem, wished_ring: u64, hold: bool) -> Member {
        let member = Member {
            pid,
            exe: exe_of(pid),
            page,
            ring_size: usable_ring_size(wished_ring),
            hold,
            bells: BTreeMap::new(),
            links: BTreeSet::new(),
        };
        let words = member.page.get();
        words.hold.store(u32::from(hold), Relaxed);
        words.version.store(sidestep_abi::VERSION, Relaxed);
        words.magic.store(sidestep_abi::MAGIC, Release);
        member
    }

    /// Places with a doorbell, as a bitmap.
    pub fn places(&self) -> u64 {
        self.bells.keys().fold(0, |mask, &place| mask | 1 << place)
    }
}

fn usable_ring_size(wished: u64) -> u32 {
    let within = wished.clamp(u64::from(*RING_SIZES.start()), u64::from(*RING_SIZES.end()));
    (within as u32).next_power_of_two()
}

fn exe_of(pid: u32) -> String {
    let link = std::fs::read_link(format!("/proc/{pid}/exe"));
    link.map_or_else(|_| "?".into(), |path| path.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_sizes_are_powers_of_two_within_bounds() {
        assert_eq!(usable_ring_size(0), *RING_SIZES.start());
        assert_eq!(usable_ring_size(u64::MAX), *RING_SIZES.end());
        assert_eq!(usable_ring_size(5000), 8192);
        assert_eq!(usable_ring_size(65536), 65536);
    }
}
