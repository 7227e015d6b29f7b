//! Links and doorbells: who shares memory with whom, and how they wake each other.

use super::{Broker, offers};
use crate::link::{Link, Released, bits};
use crate::wire::Record;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use sidestep_abi::Reason;
use sidestep_abi::link::PLACES;
use sidestep_abi::msg::{Kind, Msg};
use std::rc::Rc;
use std::sync::atomic::Ordering::SeqCst;

/// Links of one member. Each costs a descriptor and some address space here.
const MAX_LINKS: usize = 4096;

impl Broker {
    /// A link of these two with a free slot; both are told of a new one.
    pub(super) fn link_with_room(&mut self, members: [u64; 2]) -> Result<u32, Reason> {
        let key = (members[0].min(members[1]), members[0].max(members[1]));
        let known = self.pairs.get(&key).into_iter().flatten();
        if let Some(&id) = known.into_iter().find(|id| self.links.get(id).is_some_and(|link| !link.is_full())) {
            return Ok(id);
        }
        let id = self.new_link(members)?;
        self.pairs.entry(key).or_default().push(id);
        Ok(id)
    }

    fn new_link(&mut self, members: [u64; 2]) -> Result<u32, Reason> {
        let [a, b] = members.map(|id| self.member(id).map(|m| (m.ring_size, m.links.len())));
        let ((size_a, links_a), (size_b, links_b)) = a.zip(b).ok_or(Reason::PeerAbsent)?;
        if links_a.max(links_b) >= MAX_LINKS {
            return Err(Reason::Memory);
        }
        let id = self.next_link;
        let link = Link::create(id, members, size_a.max(size_b)).map_err(reason_for)?;
        let memory = link.mem.fd.clone();
        self.next_link = self.next_link.wrapping_add(1).max(1);
        let ring_size = link.mem.ring_size() as u64;
        self.links.insert(id, link);
        for (side, &member) in members.iter().enumerate() {
            let peer_pid = self.member(members[1 - side]).map_or(0, |peer| peer.pid);
            let msg =
                Msg { link: id, side: side as u32, arg: ring_size, arg2: u64::from(peer_pid), ..Msg::new(Kind::Link) };
            self.queue(member, msg, Some(memory.clone()));
            self.hand_out_bells(id, side);
            if let Some(member) = self.member_mut(member) {
                member.links.insert(id);
            }
        }
        Ok(id)
    }

    /// Gives the member on `side` every doorbell that the other side has so far.
    fn hand_out_bells(&mut self, link: u32, side: usize) {
        let Some(members) = self.links.get(&link).map(|l| l.members) else {
            return;
        };
        let bells = self.member(members[1 - side]).map(|peer| peer.bells.clone()).unwrap_or_default();
        for (place, bell) in bells {
            self.queue(members[side], peer_bell(link, side, place), Some(bell));
        }
    }

    /// A member has a new place: all its peers get the doorbell.
    pub(super) fn bell(&mut self, id: u64, record: Record) {
        let place = record.msg.place as usize;
        let Some(fd) = record.fd else {
            // A doorbell lost for want of descriptors is one that nobody rings: the place is never `known`.
            if !record.fd_lost {
                self.violation(id);
            }
            return;
        };
        match is_eventfd(&fd) {
            Some(true) if place < PLACES => {}
            // Without /proc nobody can tell, and what may be anything is not written to: a doorbell that nobody rings.
            None if place < PLACES => return offers::dispose(fd),
            _ => {
                offers::dispose(fd);
                return self.violation(id);
            }
        }
        if self.member(id).is_none_or(|member| member.bells.contains_key(&place)) {
            return; // told twice: a place keeps its doorbell
        }
        let bell = Rc::new(fd);
        let Some(member) = self.member_mut(id) else {
            return;
        };
        member.bells.insert(place, bell.clone());
        for link in member.links.clone() {
            let Some(link) = self.links.get(&link) else {
                continue;
            };
            let (link_id, members, dead) = (link.id, link.members, link.dead);
            for side in (0..2).filter(|&side| members[1 - side] == id && !dead[side]) {
                self.queue(members[side], peer_bell(link_id, side, place), Some(bell.clone()));
            }
        }
    }

    /// A side waits for its peer to look at the rings of their link, and doorbells have not helped: the peer is
    /// busy or blocked somewhere that is not ours. SIGURG is ignored by every program that does not handle it.
    pub(super) fn nudge(&mut self, id: u64, msg: &Msg) {
        let side = msg.side as usize;
        let peer = self.links.get(&msg.link).filter(|l| side < 2 && l.members[side] == id).map(|l| l.members[1 - side]);
        let Some(pid) = peer
            .and_then(|peer| self.member_mut(peer))
            .and_then(|member| i32::try_from(member.pid).ok())
            .and_then(rustix::process::Pid::from_raw)
        else {
            return;
        };
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::URG);
    }

    /// A side is done with a slot.
    pub(super) fn release(&mut self, id: u64, msg: &Msg) {
        let (slot, side) = (msg.slot as usize, msg.side as usize);
        if self.links.get(&msg.link).is_some_and(|l| side < 2 && l.members[side] == id) {
            self.give_back(msg.link, slot, side);
        }
    }

    pub(super) fn give_back(&mut self, link_id: u32, slot: usize, side: usize) {
        let Some(link) = self.links.get_mut(&link_id) else {
            return;
        };
        let Some(connection) = link.connection(slot).filter(|c| !c.released[side]) else {
            return;
        };
        self.upgraded.remove(&connection.cookies[side]);
        self.given.remove(&connection.tickets[side]);
        let froze = link.freeze(slot, side);
        if link.release(slot, side) == Released::Half && froze {
            // It should have frozen its direction itself; the peer must not write into a ring nobody reads.
            self.wake(link_id, slot, 1 - side);
        }
        self.drop_if_done(link_id);
    }

    /// A link whose one side is dead goes when the other has released everything.
    pub(super) fn drop_if_done(&mut self, id: u32) {
        let Some(link) = self.links.get(&id).filter(|l| l.is_empty() && l.dead != [false; 2]) else {
            return;
        };
        let (members, dead) = (link.members, link.dead);
        self.links.remove(&id);
        let key = (members[0].min(members[1]), members[0].max(members[1]));
        if let Some(ids) = self.pairs.get_mut(&key) {
            ids.retain(|&other| other != id);
            if ids.is_empty() {
                self.pairs.remove(&key);
            }
        }
        for side in (0..2).filter(|&side| !dead[side]) {
            if let Some(member) = self.member_mut(members[side]) {
                member.links.remove(&id);
            }
            self.queue(members[side], Msg { link: id, side: side as u32, ..Msg::new(Kind::Unlink) }, None);
        }
    }

    /// Makes the member on `side` look at `slot`.
    pub(super) fn wake(&mut self, link: u32, slot: usize, side: usize) {
        let Some(link) = self.links.get(&link) else {
            return;
        };
        let id = link.members[side];
        let Some(member) = self.member(id) else {
            return;
        };
        for place in bits(link.mark_ready(slot, side, member.places())) {
            if let Some(bell) = member.bells.get(&place) {
                ring(bell);
            }
        }
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.touched = true;
            self.dirty.insert(id);
        }
    }

    /// Ends the ring of the direction that `reader` reads, and wakes both ends if it had not ended.
    pub(super) fn freeze_and_wake(&mut self, link: u32, slot: usize, reader: usize) {
        if self.links.get(&link).is_some_and(|l| l.freeze(slot, reader)) {
            self.wake(link, slot, 0);
            self.wake(link, slot, 1);
        }
    }

    /// Writes the hold that follows from the connection's and its two members' into the slot.
    pub(super) fn apply_hold(&mut self, link: u32, slot: usize) -> bool {
        let Some(link) = self.links.get(&link) else {
            return false;
        };
        let member_held = link.members.iter().any(|&id| self.member(id).is_some_and(|m| m.hold));
        let hold = member_held || link.connection(slot).is_some_and(|c| c.hold);
        link.mem.slot(slot).hold.store(u32::from(hold), SeqCst);
        hold
    }
}

fn peer_bell(link: u32, side: usize, place: usize) -> Msg {
    Msg { link, side: side as u32, place: place as u32, ..Msg::new(Kind::PeerBell) }
}

pub(super) fn reason_for(error: Errno) -> Reason {
    match error {
        Errno::MFILE | Errno::NFILE => Reason::FdLimit,
        _ => Reason::Memory,
    }
}

/// Anything else could block the broker when it is written to, or do who knows what. None: it cannot be told now.
fn is_eventfd(fd: &OwnedFd) -> Option<bool> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok()?;
    Some(link.as_os_str() == "anon_inode:[eventfd]")
}

/// Tries at a doorbell: what fails for a moment must not leave a member asleep.
const TRIES: usize = 4;

/// Rings without blocking, whatever the member has made of its eventfd. One that is full is rung already.
fn ring(bell: &OwnedFd) {
    let rung = |_| matches!(ring_once(bell), Ok(()) | Err(Errno::AGAIN));
    // If it cannot be done at all, the sleeper hears of it from its peer, or from the kernel.
    let _ = (0..TRIES).any(rung);
}

fn ring_once(bell: &OwnedFd) -> Result<(), Errno> {
    let flags = fcntl_getfl(bell.as_fd())?;
    fcntl_setfl(bell.as_fd(), flags | OFlags::NONBLOCK)?;
    rustix::io::write(bell, &1u64.to_ne_bytes()).map(drop)
}
