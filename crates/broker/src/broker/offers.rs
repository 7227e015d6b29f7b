//! Offers: proof, pairing, and handing out slots.

use super::Broker;
use crate::link::Connection;
use crate::matching::{Offer, Ticket, Verdict};
use crate::proof::{self, Identity, NoProof};
use crate::wire::Record;
use rustix::fd::OwnedFd;
use sidestep_abi::Reason;
use sidestep_abi::msg::{Kind, Msg};

/// Offers of one member that may wait at once.
pub const MAX_WAITING: usize = 65536;

impl Broker {
    pub(super) fn offered(&mut self, id: u64, record: Record) {
        let ticket = Ticket { member: id, offer: record.msg.offer };
        let Some(sender) = record.sender else {
            return self.violation(id);
        };
        if self.matcher.contains(ticket) {
            return self.violation(id);
        }
        let Some(fd) = record.fd else {
            return if record.fd_lost { self.refuse(ticket, Reason::FdLimit) } else { self.violation(id) };
        };
        let proof = proof::identify(&fd);
        dispose(fd);
        match self.examine(ticket, proof, record.msg.arg) {
            Ok(identity) => self.find_other_end(Offer { ticket, identity, uid: sender.uid }),
            Err(reason) => self.refuse(ticket, reason),
        }
    }

    fn examine(&self, ticket: Ticket, proof: Result<Identity, NoProof>, cookie: u64) -> Result<Identity, Reason> {
        let identity = proof.map_err(|why| match why {
            NoProof::NotConnected => Reason::Short,
            NoProof::NotTcp | NoProof::OldKernel => Reason::Foreign,
        })?;
        if identity.cookie != cookie {
            return Err(Reason::Foreign);
        }
        match self.upgraded.get(&cookie) {
            Some(&holder) if holder == ticket.member => return Err(Reason::Dup),
            Some(_) => return Err(Reason::Shared),
            None => {}
        }
        if self.matcher.waiting_of(ticket.member) >= MAX_WAITING {
            return Err(Reason::Memory);
        }
        Ok(identity)
    }

    fn find_other_end(&mut self, offer: Offer) {
        match self.matcher.offer(offer) {
            Verdict::Waits => {}
            Verdict::Pair(first) => self.pair(first, offer),
            Verdict::Refused(reason, others) => {
                self.refuse(offer.ticket, reason);
                for other in others {
                    self.refuse(other, reason);
                }
            }
        }
    }

    /// `first` waited, `second` came.
    fn pair(&mut self, first: Offer, second: Offer) {
        let stuck = self.conns.get(&first.ticket.member).is_none_or(|conn| conn.outbox.is_full());
        let slot = if stuck { Err(Reason::PeerAbsent) } else { self.connect(&first, &second) };
        if let Err(reason) = slot {
            self.refuse(first.ticket, reason);
            self.refuse(second.ticket, reason);
        }
    }

    fn connect(&mut self, first: &Offer, second: &Offer) -> Result<(), Reason> {
        let members = [first.ticket.member, second.ticket.member];
        let id = self.link_with_room(members)?;
        let link = self.links.get_mut(&id).ok_or(Reason::Memory)?;
        // The link's sides are fixed; the first offerer is side 0 only on a link that it began.
        let ends = if link.members == members { [first, second] } else { [second, first] };
        let connection = Connection {
            cookies: ends.map(|end| end.identity.cookie),
            tickets: ends.map(|end| end.ticket),
            local: ends[0].identity.local,
            remote: ends[0].identity.remote,
            released: [false; 2],
            hold: false,
        };
        let slot = link.take(connection).ok_or(Reason::Memory)?;
        self.apply_hold(id, slot);
        for (side, end) in ends.into_iter().enumerate() {
            self.upgraded.insert(end.identity.cookie, end.ticket.member);
            self.given.insert(end.ticket, (id, slot, side));
            let msg =
                Msg { offer: end.ticket.offer, link: id, slot: slot as u32, side: side as u32, ..Msg::new(Kind::Slot) };
            self.queue(end.ticket.member, msg, None);
        }
        Ok(())
    }

    /// The member has closed the connection, or knows nothing of it any more.
    pub(super) fn withdrawn(&mut self, ticket: Ticket) {
        if self.matcher.withdraw(ticket).is_none()
            && let Some(&(link, slot, side)) = self.given.get(&ticket)
        {
            self.give_back(link, slot, side);
        }
    }

    pub(super) fn refuse(&mut self, ticket: Ticket, reason: Reason) {
        self.count_refused(reason);
        let msg = Msg { offer: ticket.offer, arg: reason as u64, ..Msg::new(Kind::Refused) };
        self.queue(ticket.member, msg, None);
    }
}

/// Closes a descriptor that a member sent. If the member has closed its own meanwhile, ours is the last one:
/// with SO_LINGER set that would block, so it happens elsewhere.
pub(super) fn dispose(fd: OwnedFd) {
    if proof::close_may_block(&fd) {
        // If no thread can be had, the closure is dropped here, and the descriptor with it.
        let _ = std::thread::Builder::new().name("close".into()).spawn(move || drop(fd));
    }
}
