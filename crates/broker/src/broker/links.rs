//! Links: pairs of members that share memory. A link is announced to its members once each side can ring the doorbells that the
//! other side has so far. Without a doorbell, the peer would have to look every millisecond.

use super::{Broker, Receivers};
use crate::counted::Counted;
use crate::domain::Scope;
use crate::link::{Link, Permits, Released, Side, bits};
use crate::memory::Hole;
use crate::outbox::Attached;
use crate::receiver::loan::Loan;
use crate::receiver::message::{Command, Ringing};
use rustix::io::Errno;
use sidestep_abi::Reason;
use sidestep_abi::msg::{Kind, Msg};
use sidestep_ring::slot;
use std::sync::Arc;

/// A link that has not been announced to its members yet.
#[derive(Default)]
pub struct Opening {
    /// Number of eventfds that receivers are still to make.
    missing: usize,
    ringers: Vec<(Ringing, Loan)>,
    /// Records about slots of the link, to be sent after its announcement.
    slots: Vec<(u64, Msg)>,
}

impl Broker {
    /// A link of these two members with a free slot. A new link is announced to both.
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
        let [a, b] = members.map(|id| self.member(id).map(|m| m.ring_size));
        let (size_a, size_b) = a.zip(b).ok_or(Reason::PeerAbsent)?;
        let scopes = members.map(|id| self.scope_of(id));
        let mut permits = permits(&self.receivers, scopes)?;
        for (member, peer) in [(members[0], scopes[1]), (members[1], scopes[0])] {
            let entry = self.member_mut(member).and_then(|member| member.room.link(peer));
            permits.rooms.push(entry.ok_or(Reason::Memory)?);
        }
        let id = free_number(self.next_link, |id| self.links.contains_key(&id)).ok_or(Reason::Memory)?;
        // In different domains the smaller size counts: a foreign domain must not decide how much memory and address space a
        // member uses. With the stack its own counts: its rings must hold the window that the kernel has promised, and it uses
        // memory for the programs of everybody.
        let ring_size = match members.map(|id| self.is_stack(id)) {
            [true, _] => size_a,
            [_, true] => size_b,
            _ if scopes[0] == scopes[1] => size_a.max(size_b),
            _ => size_a.min(size_b),
        };
        let version = members.iter().filter_map(|id| self.conns.get(id)).map(|conn| conn.version).min();
        let about = (version.ok_or(Reason::PeerAbsent)?, ring_size);
        let link = Link::create(id, members, about, scopes, permits).map_err(reason_for)?;
        self.next_link = id.wrapping_add(1).max(1);
        self.links.insert(id, link);
        for member in members {
            if let Some(member) = self.member_mut(member) {
                member.links.insert(id);
            }
        }
        self.begin_opening(id, members);
        Ok(id)
    }

    fn begin_opening(&mut self, link: u32, members: [u64; 2]) {
        let mut opening = Opening::default();
        for side in 0..2 {
            let owner = members[1 - side];
            let places: Vec<_> = self.member(owner).map(|m| m.doorbells.keys().copied().collect()).unwrap_or_default();
            for place in places {
                opening.missing += usize::from(self.have_ringer_made(Ringing { owner, place, link, side }));
            }
        }
        self.openings.insert(link, opening);
        self.open_if_complete(link);
    }

    /// Orders the eventfd for a doorbell. False: the side that is to ring has no room for it; the owner's waits then look every
    /// millisecond.
    fn have_ringer_made(&mut self, ringing: Ringing) -> bool {
        let Some(rings) = self.links.get(&ringing.link).map(|link| link.members[ringing.side]) else {
            return false;
        };
        let owner = self.scope_of(ringing.owner);
        let Some(doorbell) = self.member_mut(rings).and_then(|member| member.room.doorbell(owner)) else {
            return false;
        };
        if let Some(link) = self.links.get_mut(&ringing.link) {
            link.permits.rooms.push(doorbell);
        }
        if let Some(closes) = self.receivers.get(&self.scope_of(rings)) {
            self.ringing.entry((ringing.link, ringing.side)).or_insert_with(|| closes.mailbox.clone());
        }
        if let Some(owner) = self.member_mut(ringing.owner) {
            owner.ringers_due += 1;
        }
        self.command(ringing.owner, Command::Ringer(ringing));
        true
    }

    /// A receiver has made the eventfd; None: it could not.
    pub(super) fn ringer(&mut self, ringing: Ringing, ringer: Option<Loan>) {
        if let Some(owner) = self.member_mut(ringing.owner) {
            owner.ringers_due = owner.ringers_due.saturating_sub(1);
        }
        let Some(opening) = self.openings.get_mut(&ringing.link) else {
            return self.tell_of_ringer(ringing, ringer);
        };
        opening.missing = opening.missing.saturating_sub(1);
        opening.ringers.extend(ringer.map(|ringer| (ringing, ringer)));
        self.open_if_complete(ringing.link);
    }

    fn open_if_complete(&mut self, link: u32) {
        if self.openings.get(&link).is_some_and(|opening| opening.missing == 0) {
            self.open(link);
        }
    }

    /// Announces the link to both members, with the eventfds and slots that have come since.
    pub(super) fn open(&mut self, id: u32) {
        let (Some(opening), Some(link)) = (self.openings.remove(&id), self.links.get(&id)) else {
            return;
        };
        let (members, memory, ring_size) = (link.members, link.memory.clone(), link.mem.ring_size() as u64);
        let mut ringers = opening.ringers;
        for (side, &member) in members.iter().enumerate() {
            let peer_pid = self.member(members[1 - side]).map_or(0, |peer| peer.pid);
            let place = u32::from(self.is_stack(members[1 - side]));
            let (side_number, arg2) = (side as u32, u64::from(peer_pid));
            let msg = Msg { link: id, side: side_number, arg: ring_size, arg2, place, ..Msg::new(Kind::Link) };
            self.queue(member, msg, Some(Attached::Memory(memory.clone())));
            for (ringing, ringer) in ringers.extract_if(.., |(ringing, _)| ringing.side == side) {
                self.queue(member, peer_doorbell(ringing), Some(Attached::Ringer(ringer)));
            }
        }
        for (member, msg) in opening.slots {
            self.queue(member, msg, None);
        }
    }

    /// Sends the member a record about a slot, after the link's announcement.
    pub(super) fn tell_of_slot(&mut self, member: u64, link: u32, msg: Msg) {
        match self.openings.get_mut(&link) {
            Some(opening) => opening.slots.push((member, msg)),
            None => self.queue(member, msg, None),
        }
    }

    /// Sends the peer the eventfd of a doorbell that is newer than the link.
    fn tell_of_ringer(&mut self, ringing: Ringing, ringer: Option<Loan>) {
        let link = self.links.get(&ringing.link).filter(|link| link.is_whole());
        if let (Some(link), Some(ringer)) = (link, ringer) {
            self.queue(link.members[ringing.side], peer_doorbell(ringing), Some(Attached::Ringer(ringer)));
        }
    }

    /// A member has announced a new doorbell; the broker rings it with `own`. Orders eventfds for all its living peers. None:
    /// the member has sent no doorbell.
    pub(super) fn doorbell(&mut self, id: u64, place: usize, own: Option<Loan>) {
        let (Some(member), Some(own)) = (self.member_mut(id), own) else {
            return self.violation(id);
        };
        member.doorbells.insert(place, own);
        for link in member.links.clone() {
            // If a side of the link is dead, its receiver has been told to remove all eventfds of the link, and does so only
            // once.
            let Some(members) = self.links.get(&link).filter(|link| link.is_whole()).map(|link| link.members) else {
                continue;
            };
            for side in (0..2).filter(|&side| members[1 - side] == id) {
                let asked = self.have_ringer_made(Ringing { owner: id, place, link, side });
                if let Some(opening) = self.openings.get_mut(&link) {
                    opening.missing += usize::from(asked);
                }
            }
        }
    }

    /// The member on one side releases a slot.
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
        match link.release(slot, side) {
            Released::Half => {
                self.wait_for_peer(link_id, slot, side);
                // The side should have frozen its direction itself. The peer must not write into a ring that nobody reads.
                if froze {
                    self.wake(link_id, slot, 1 - side);
                }
            }
            Released::Whole(hole) => self.punch(link_id, hole),
            Released::Nothing => {}
        }
        self.drop_if_done(link_id);
    }

    /// `side` has released the slot, but its peer still uses the memory.
    fn wait_for_peer(&mut self, link_id: u32, slot: usize, side: usize) {
        let Some((members, ring_size)) = self.links.get(&link_id).map(|link| (link.members, link.mem.ring_size()))
        else {
            return;
        };
        let peer = self.scope_of(members[1 - side]);
        let kept = self.member_mut(members[side]).and_then(|member| member.room.unreleased(peer, ring_size));
        if let Some(connection) = self.links.get_mut(&link_id).and_then(|link| link.connection_mut(slot)) {
            connection.kept = kept;
        }
    }

    /// Whether each member may get one more ring, given the memory that it has released and the other has not.
    pub(super) fn may_share_more(&mut self, link: u32) -> bool {
        let Some((members, ring_size)) = self.links.get(&link).map(|link| (link.members, link.mem.ring_size())) else {
            return false;
        };
        [members, [members[1], members[0]]].into_iter().all(|[member, peer]| {
            let peer = self.scope_of(peer);
            self.member_mut(member).is_some_and(|member| member.room.may_share(peer, ring_size))
        })
    }

    /// Gives the memory of a slot back to the system, in a thread that only the two members' domains can delay.
    pub(super) fn punch(&mut self, link: u32, hole: Option<Hole>) {
        let Some((scope, hole)) = self.links.get(&link).map(|link| both(link.scopes)).zip(hole) else {
            return;
        };
        if let Some(receiver) = self.receiver_of(scope) {
            receiver.punching += 1;
            receiver.mailbox.send(Command::Punch(hole));
        } else {
            self.punched(link, hole.slot); // the memory stays in use until the link goes
        }
    }

    pub(super) fn punched(&mut self, link: u32, slot: usize) {
        if let Some(link) = self.links.get_mut(&link) {
            link.punched(slot);
        }
    }

    /// The eventfds with which a side rang are out of use.
    pub(super) fn unrung(&mut self, link: u32, side: usize, ringers: Vec<Arc<Counted>>) {
        if let Some(closes) = self.ringing.remove(&(link, side)) {
            // Sent even if there are none: the receiver may have stayed only for this.
            closes.send(Command::CloseUnrung(ringers));
        }
        if let Some(link) = self.links.get_mut(&link) {
            link.unrung[side] = true;
        }
        self.drop_if_done(link);
    }

    /// Drops a link with a dead side, once the other side has released all connections, no eventfd of the link is in a
    /// doorbell, and no process that was cut off has a connection of the link.
    pub(super) fn drop_if_done(&mut self, id: u32) {
        let Some(link) = self.links.get_mut(&id).filter(|link| link.is_empty() && link.is_over()) else {
            return;
        };
        if !std::mem::replace(&mut link.falls_silent, true) {
            self.fall_silent(id);
        }
        let is_quiet = |l: &&Link| (0..2).all(|side| l.sides[side] != Side::Connected || l.unrung[side]);
        let Some(link) = self.links.get(&id).filter(is_quiet) else {
            return;
        };
        let (members, sides) = (link.members, link.sides);
        self.links.remove(&id);
        self.openings.remove(&id);
        let key = (members[0].min(members[1]), members[0].max(members[1]));
        if let Some(ids) = self.pairs.get_mut(&key) {
            ids.retain(|&other| other != id);
            if ids.is_empty() {
                self.pairs.remove(&key);
            }
        }
        for side in (0..2).filter(|&side| sides[side] == Side::Connected) {
            if let Some(member) = self.member_mut(members[side]) {
                member.links.remove(&id);
            }
            self.queue(members[side], Msg { link: id, side: side as u32, ..Msg::new(Kind::Unlink) }, None);
        }
    }

    /// Removes the link's eventfds from the doorbells of both sides. Not earlier: a process that was cut off may still use
    /// them, as it uses the memory. If both processes were cut off, their doorbells stay as they are.
    fn fall_silent(&mut self, id: u32) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        let (scopes, takes_out) = (link.scopes, link.sides != [Side::CutOff; 2]);
        for side in 0..2 {
            match self.receivers.get(&scopes[1 - side]) {
                Some(owner) => owner.mailbox.send(Command::Unring { link: id, side, takes_out }),
                None => self.unrung(id, side, Vec::new()),
            }
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
        bits(link.mark_ready(slot, side, member.places())).for_each(|place| member.ring(place));
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.touched = true;
            self.dirty.insert(id);
        }
    }

    /// Stores in the slot whether the connection is held: by the operator, who named it or one of its members, or because its users
    /// may not share memory any more. Returns the same.
    pub(super) fn apply_hold(&mut self, link: u32, number: usize) -> bool {
        let Some(link) = self.links.get(&link) else {
            return false;
        };
        let member_held = link.members.iter().any(|&id| self.member(id).is_some_and(|m| m.hold));
        let hold = member_held || link.connection(number).is_some_and(|c| c.hold || self.is_forbidden(c));
        slot::set_hold(link.mem.slot(number), hold);
        hold
    }
}

/// Quota that a link takes in the domains of its two ends: for its memory, and for the mapping of its head.
fn permits(receivers: &Receivers, scopes: [Scope; 2]) -> Result<Permits, Reason> {
    let mut permits = Permits::default();
    let both = if scopes[0] == scopes[1] { &scopes[..1] } else { &scopes[..] };
    for scope in both {
        let accounts = &receivers.get(scope).ok_or(Reason::PeerAbsent)?.accounts;
        permits.descriptors.push(accounts.descriptors.claim(1).ok_or(Reason::FdLimit)?);
        permits.mappings.push(accounts.mappings.claim(1).ok_or(Reason::Memory)?);
    }
    Ok(permits)
}

/// The scope of the thread that gives a link's memory back: only the domains of its members can delay it.
fn both(scopes: [Scope; 2]) -> Scope {
    match scopes {
        [Scope::Domain(a), Scope::Domain(b)] => Scope::of_pair(a, b),
        [a, _] => a,
    }
}

fn peer_doorbell(ringing: Ringing) -> Msg {
    let Ringing { link, side, place, .. } = ringing;
    Msg { link, side: side as u32, place: place as u32, ..Msg::new(Kind::PeerDoorbell) }
}

/// The first number from `next` on that is not in use: numbers come again after 2^32 links, and a link may last as long. 0 is none.
fn free_number(next: u32, is_used: impl Fn(u32) -> bool) -> Option<u32> {
    (next..=u32::MAX).chain(1..next).find(|id| !is_used(*id))
}

pub(super) fn reason_for(error: Errno) -> Reason {
    match error {
        Errno::MFILE | Errno::NFILE => Reason::FdLimit,
        _ => Reason::Memory,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_in_use_is_not_given_again() {
        let after = |next| free_number(next, |id| [1, 2, u32::MAX].contains(&id));
        assert_eq!([1, 3, 7, u32::MAX].map(after), [Some(3), Some(3), Some(7), Some(3)]);
    }
}
