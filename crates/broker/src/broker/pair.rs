//! Two ends of one connection get a slot.

use super::Broker;
use crate::addr::Endpoint;
use crate::link::Connection;
use crate::matching::{Offer, Ticket};
use crate::proof::SocketFacts;
use crate::quota::Permit;
use crate::trust::Who;
use sidestep_abi::Reason;
use sidestep_abi::msg::{Kind, Msg};

/// One end of a connection that gets a slot.
#[derive(Clone)]
pub struct End {
    /// The offer of this end.
    pub ticket: Ticket,
    /// Cookie of its socket; of the stack, which has none, a number that no socket has.
    pub cookie: u64,
    /// The process.
    pub who: Who,
    /// Its own address.
    pub local: Endpoint,
    /// The address of the other end.
    pub remote: Endpoint,
}

impl End {
    /// The end that was offered.
    pub fn of(offer: &Offer) -> End {
        let SocketFacts { cookie, local, remote, .. } = offer.facts;
        End { ticket: offer.ticket, cookie, who: offer.who.clone(), local, remote }
    }
}

impl Broker {
    /// Pairs `first`, which was waiting, with `second`, which has just arrived.
    pub(super) fn pair(&mut self, first: Offer, second: Offer) {
        self.waiting.remove(&first.ticket);
        let stuck = self.conns.get(&first.ticket.member).is_none_or(|conn| conn.outbox.is_full());
        let slot = if stuck {
            Err(Reason::PeerAbsent)
        } else if self.have_moved([&first, &second]) {
            Err(Reason::UserPair)
        } else {
            self.connect([&first, &second].map(End::of))
        };
        if let Err(reason) = slot {
            self.refuse(first.ticket, reason);
            self.refuse(second.ticket, reason);
        }
    }

    /// Gives both ends a slot. If the link is made for them, the first is its side 0.
    pub(super) fn connect(&mut self, both: [End; 2]) -> Result<(), Reason> {
        let members = both.each_ref().map(|end| end.ticket.member);
        let id = self.link_with_room(members)?;
        if !self.may_share_more(id) {
            return Err(Reason::Memory);
        }
        let permits = self.permits_of_connection(id)?;
        let link = self.links.get_mut(&id).ok_or(Reason::Memory)?;
        let [first, second] = both;
        let ends = if link.members == members { [first, second] } else { [second, first] };
        let connection = Connection {
            cookies: ends.each_ref().map(|end| end.cookie),
            tickets: ends.each_ref().map(|end| end.ticket),
            whos: ends.each_ref().map(|end| end.who.clone()),
            local: ends[0].local,
            remote: ends[0].remote,
            released: [false; 2],
            hold: false,
            kept: None,
            _permits: permits,
        };
        let slot = link.claim(connection).ok_or(Reason::Memory)?;
        self.apply_hold(id, slot);
        for (side, end) in ends.into_iter().enumerate() {
            self.upgraded.insert(end.cookie, end.ticket.member);
            self.given.insert(end.ticket, (id, slot, side));
            let msg =
                Msg { offer: end.ticket.offer, link: id, slot: slot as u32, side: side as u32, ..Msg::new(Kind::Slot) };
            self.tell_of_slot(end.ticket.member, id, msg);
        }
        Ok(())
    }

    /// Quota for one more connection of the link, in the domains of its two ends.
    fn permits_of_connection(&self, link: u32) -> Result<Vec<Permit>, Reason> {
        let [one, other] = self.links.get(&link).ok_or(Reason::Memory)?.scopes;
        let claim = |scope| self.receivers.get(&scope).and_then(|receiver| receiver.accounts.connections.claim(1));
        let mut permits = vec![claim(one).ok_or(Reason::Memory)?];
        if one != other {
            permits.push(claim(other).ok_or(Reason::Memory)?);
        }
        Ok(permits)
    }
}
