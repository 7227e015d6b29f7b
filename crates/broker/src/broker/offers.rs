//! Offers: proof, pairing, and handing out slots.
//!
//! ```text
//! receiver                              main thread
//!   holds the socket, identified -------> does an offer wait that fits?
//!                                           no: the new offer waits. The receiver lets the socket go
//!   looks for the sockets of those  <------ yes
//!   offers, then again at its own
//!   lets the socket go, if one is found
//!   found, gone, unchanged? ------------> exactly one that fits is alive: a pair
//! ```
//! If NAT led to the waiting end when it was offered, its proof may be out of date: the translation may be gone, or another
//! socket may be reached by the same address. So its member must offer it again, and the pair is made then.

use super::Broker;
use crate::domain::Scope;
use crate::matching::{Offer, Ticket, Verdict};
use crate::netns::Namespace;
use crate::proof::SocketFacts;
use crate::quota::Permit;
use crate::receiver::message::{Claim, Command, InHand, Liveness, Offered};
use crate::wire::Sender;
use sidestep_abi::Reason;
use sidestep_abi::msg::{Kind, Msg};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An offer that waits, or is being proved.
pub struct Pending {
    namespace: Arc<Namespace>,
    /// Why the stack has not taken the connection.
    pub declined: Option<Reason>,
    _permit: Permit,
}

/// An offer whose socket is in hand, while others are looked for.
pub struct Proving {
    offer: Offer,
    socket: InHand,
    pending: Pending,
    /// Number of searches for the other end so far.
    rounds: u32,
}

/// While sockets are looked for, further offers that fit may arrive, so another round follows. No honest
/// user has that many connections with the same addresses.
const MOST_ROUNDS: u32 = 8;

/// Interval of looks for waiting offers whose sockets are gone. Each look covers one of [`PART`] parts of them.
pub const RECHECK: Duration = Duration::from_secs(5);
const PART: usize = 5;
/// Most offers in one command, since the receiver has other work, too.
const AT_ONCE: usize = 64;
/// Outdated entries that the list may have before it is cleaned up.
const SPARE: usize = 64;

impl Broker {
    pub(super) fn offered(&mut self, id: u64, msg: &Msg, sender: Option<Sender>, what: Offered) {
        let ticket = Ticket { member: id, offer: msg.offer };
        let passive = msg.arg2 != 0;
        let (Some(sender), false) = (sender, self.is_pending(ticket)) else {
            return self.violation(id);
        };
        match what {
            Offered::Violation => self.violation(id),
            Offered::Refuse(reason) => self.refuse(ticket, reason),
            Offered::NoRoom(facts) => {
                let who = self.who(id, sender, &facts);
                self.no_room(Offer { ticket, facts, who, passive }, Reason::FdLimit);
            }
            Offered::Socket(facts, namespace, socket) => {
                let offer = Offer { ticket, facts, who: self.who(id, sender, &facts), passive };
                match self.examine(ticket, &facts, msg.arg) {
                    Ok(permit) => {
                        let pending = Pending { namespace, declined: None, _permit: permit };
                        self.find_other_end(Proving { offer, socket, pending, rounds: 0 });
                    }
                    Err(Reason::Memory) => {
                        self.command(id, Command::LetGo(socket));
                        self.no_room(offer, Reason::Memory);
                    }
                    Err(reason) => self.turn_down(ticket, socket, reason),
                }
            }
        }
    }

    /// Refuses an offer for lack of room, and the waiting offers of its other end, which would wait in vain.
    fn no_room(&mut self, new: Offer, reason: Reason) {
        self.refuse(new.ticket, reason);
        for other in self.matcher.candidates(&new) {
            self.drop_waiting(other, reason);
        }
    }

    fn is_pending(&self, ticket: Ticket) -> bool {
        self.matcher.contains(ticket) || self.proving.contains_key(&ticket)
    }

    fn examine(&self, ticket: Ticket, facts: &SocketFacts, cookie: u64) -> Result<Permit, Reason> {
        if facts.cookie != cookie {
            return Err(Reason::Foreign);
        }
        match self.upgraded.get(&cookie) {
            Some(&holder) if holder == ticket.member => return Err(Reason::Dup),
            Some(_) => return Err(Reason::Shared),
            None => {}
        }
        self.accounts_of(ticket.member).and_then(|accounts| accounts.offers.claim(1)).ok_or(Reason::Memory)
    }

    fn find_other_end(&mut self, new: Proving) {
        for gone in self.matcher.superseded_by(&new.offer.facts) {
            self.remove_waiting(gone);
        }
        if let Some(verdict) = self.matcher.same_socket(&new.offer) {
            return self.execute(new, verdict);
        }
        let candidates = self.matcher.candidates(&new.offer);
        if candidates.is_empty() || !self.matcher.is_asked_for(&new.offer, &candidates) {
            let verdict = self.matcher.decide(new.offer.clone(), &[]);
            return self.execute(new, verdict);
        }
        let ticket = new.offer.ticket;
        let against = candidates.into_iter().filter_map(|ticket| self.claim(ticket)).collect();
        self.command(ticket.member, Command::Prove { ticket, socket: new.socket, against });
        self.proving.insert(ticket, new);
    }

    /// What a receiver needs to look for the socket of a waiting offer.
    fn claim(&self, ticket: Ticket) -> Option<Claim> {
        let offer = self.matcher.waiting(ticket)?;
        let pending = self.waiting.get(&ticket)?;
        Some(Claim { ticket, facts: offer.facts, namespace: pending.namespace.clone() })
    }

    /// A receiver has looked for the candidates' sockets while it held the offered one.
    pub(super) fn proved(
        &mut self,
        (ticket, socket): (Ticket, InHand),
        unchanged: bool,
        standings: &[(Ticket, Liveness)],
    ) {
        if self.proving.get(&ticket).is_none_or(|new| new.socket != socket) {
            return; // the offer was withdrawn meanwhile
        }
        let Some(new) = self.proving.remove(&ticket) else {
            return;
        };
        let which = |wanted| standings.iter().filter(move |(_, s)| *s == wanted).map(|(ticket, _)| *ticket);
        which(Liveness::Gone).for_each(|gone| self.remove_waiting(gone));
        if !unchanged {
            return self.turn_down(ticket, new.socket, Reason::Short);
        }
        let unknown: Vec<_> = which(Liveness::Unknown).filter(|t| self.matcher.contains(*t)).collect();
        if !unknown.is_empty() {
            unknown.into_iter().for_each(|other| self.drop_waiting(other, Reason::Unproven));
            return self.turn_down(ticket, new.socket, Reason::Unproven);
        }
        let alive: Vec<_> = which(Liveness::Alive).collect();
        // Nothing is known about candidates that have arrived meanwhile.
        let all_known = self.matcher.candidates(&new.offer).iter().all(|candidate| alive.contains(candidate));
        if !all_known && new.rounds < MOST_ROUNDS {
            if alive.is_empty() {
                return self.find_other_end(Proving { rounds: new.rounds + 1, ..new });
            }
            return self.ask_again(&new.offer); // its socket is not in hand any more
        }
        let verdict = match self.matcher.same_socket(&new.offer) {
            Some(refused) => refused,
            None => self.matcher.decide(new.offer.clone(), &alive),
        };
        self.execute(new, verdict);
    }

    fn execute(&mut self, new: Proving, verdict: Verdict) {
        let Proving { offer, socket, pending, .. } = new;
        let ticket = offer.ticket;
        let is_shown = verdict == Verdict::Waits && self.concerns_stack(&offer);
        self.command(ticket.member, if is_shown { Command::Lend { ticket, socket } } else { Command::LetGo(socket) });
        match verdict {
            Verdict::Waits => self.waits(offer.ticket, pending),
            Verdict::Anew(others) => {
                self.waits(offer.ticket, pending);
                others.into_iter().for_each(|other| self.ask_again(&other));
            }
            Verdict::Pair(first) => self.pair(first, offer),
            Verdict::Strangers(other) => {
                // Not the users who joined: a worker may have joined before it gave up root.
                self.note_strangers([offer.who.uid, other.who.uid]);
                self.refuse_all(Reason::UserPair, offer.ticket, vec![other.ticket]);
            }
            Verdict::Refused(reason, others) => self.refuse_all(reason, offer.ticket, others),
        }
    }

    /// `others`: they were waiting, until `new` came.
    fn refuse_all(&mut self, reason: Reason, new: Ticket, others: Vec<Ticket>) {
        self.refuse(new, reason);
        for other in others {
            self.waiting.remove(&other);
            self.refuse(other, reason);
        }
    }

    fn waits(&mut self, ticket: Ticket, pending: Pending) {
        if self.waiting.is_empty() {
            // No entry of the list waits any more.
            self.to_recheck.clear();
            self.next_recheck = Instant::now() + RECHECK;
        }
        self.waiting.insert(ticket, pending);
        self.to_recheck.push_back(ticket);
        self.prune();
    }

    pub(super) fn ask_again(&mut self, Offer { ticket, facts, .. }: &Offer) {
        self.waiting.remove(ticket);
        let msg = Msg { offer: ticket.offer, arg: facts.cookie, ..Msg::new(Kind::Again) };
        self.queue(ticket.member, msg, None);
    }

    /// Keeps the list about as short as the number of waiting offers: removes duplicates, and offers that do not wait any more.
    fn prune(&mut self) {
        if self.to_recheck.len() > 2 * self.waiting.len() + SPARE {
            let mut listed = HashSet::new();
            self.to_recheck.retain(|ticket| self.waiting.contains_key(ticket) && listed.insert(*ticket));
        }
    }

    /// A passive offer would profit from a ring now. What its socket proved may be out of date, so the member must offer it
    /// again.
    pub(super) fn pressed(&mut self, ticket: Ticket) {
        if let Some(new) = self.proving.get_mut(&ticket) {
            new.offer.passive = false;
        } else if let Some(offer) = self.matcher.press(ticket) {
            self.ask_again(&offer);
        } else if self.matcher.waiting(ticket).is_some_and(|offer| self.concerns_stack(offer))
            && let Some(offer) = self.matcher.withdraw(ticket)
        {
            self.ask_again(&offer);
        }
    }

    /// The member has closed the connection, or no longer knows the offer.
    pub(super) fn withdrawn(&mut self, ticket: Ticket) {
        if let Some(new) = self.proving.remove(&ticket) {
            self.command(ticket.member, Command::LetGo(new.socket));
        } else if self.matcher.withdraw(ticket).is_some() {
            self.waiting.remove(&ticket);
        } else if let Some(&(link, slot, side)) = self.given.get(&ticket) {
            self.give_back(link, slot, side);
        }
    }

    /// Refuses a waiting offer whose socket is gone: its addresses may be another connection's by now.
    pub(super) fn remove_waiting(&mut self, ticket: Ticket) {
        self.drop_waiting(ticket, Reason::Short);
    }

    fn drop_waiting(&mut self, ticket: Ticket, reason: Reason) {
        if self.matcher.withdraw(ticket).is_some() {
            self.waiting.remove(&ticket);
            self.refuse(ticket, reason);
        }
    }

    /// Removes all offers of a member.
    pub(super) fn remove_offers(&mut self, member: u64) {
        for ticket in self.matcher.remove_member(member) {
            self.waiting.remove(&ticket);
        }
        let proving: Vec<_> = self.proving_of(member).collect();
        proving.iter().for_each(|ticket| drop(self.proving.remove(ticket)));
    }

    /// Offers of a member that are being proved.
    pub(super) fn proving_of(&self, member: u64) -> impl Iterator<Item = Ticket> {
        let of = |member| Ticket { member, offer: 0 };
        self.proving.range(of(member)..of(member + 1)).map(|(ticket, _)| *ticket)
    }

    /// Looks for a part of the waiting offers, so that none whose socket is gone stays for long. Each domain's receiver looks
    /// for the sockets of its own domain. A receiver that has not finished the last look gets no new one.
    pub fn recheck(&mut self, now: Instant) {
        self.next_recheck = now + RECHECK;
        let part = self.to_recheck.len().div_ceil(PART);
        let due: Vec<_> = self.to_recheck.drain(..part).filter(|ticket| self.waiting.contains_key(ticket)).collect();
        let mut by_scope: BTreeMap<Scope, Vec<Claim>> = BTreeMap::new();
        for claim in due.iter().filter_map(|ticket| self.claim(*ticket)) {
            by_scope.entry(self.scope_of(claim.ticket.member)).or_default().push(claim);
        }
        for (scope, claims) in by_scope {
            let Some(receiver) = self.receivers.get_mut(&scope).filter(|receiver| receiver.rechecks == 0) else {
                continue;
            };
            for claims in claims.chunks(AT_ONCE) {
                receiver.rechecks += 1;
                receiver.mailbox.send(Command::Recheck(claims.to_vec()));
            }
        }
        self.to_recheck.extend(due);
    }

    /// Time of the next [`Broker::recheck`]. None: no offer waits, so the broker may sleep.
    pub fn next_recheck(&self) -> Option<Instant> {
        (!self.waiting.is_empty()).then_some(self.next_recheck)
    }

    /// Refuses an offer whose socket a receiver holds.
    fn turn_down(&mut self, ticket: Ticket, socket: InHand, reason: Reason) {
        self.command(ticket.member, Command::LetGo(socket));
        self.refuse(ticket, reason);
    }

    pub(super) fn refuse(&mut self, ticket: Ticket, reason: Reason) {
        self.count_refused(reason);
        let msg = Msg { offer: ticket.offer, arg: reason as u64, ..Msg::new(Kind::Refused) };
        self.queue(ticket.member, msg, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::{Poller, Settings};
    use crate::netns::{Namespaces, View};
    use crate::proof::AddressSpace;
    use crate::trust::{Trust, Who};
    use rustix::event::epoll::{self, CreateFlags};
    use std::net::SocketAddr;

    fn broker() -> Broker {
        let trust = Trust::of_users(1000, None, &[]);
        let subordinates = Default::default();
        let settings = Settings { address: "none".into(), trust, subordinates, across_namespaces: false };
        Broker::new(settings, Poller(epoll::create(CreateFlags::CLOEXEC).expect("epoll")))
    }

    /// Makes `offers` offers of one member wait.
    fn fill(broker: &mut Broker, offers: u64) {
        let (listener, namespaces) =
            (std::net::TcpListener::bind("127.0.0.1:0"), Arc::new(Namespaces::of_this_process()));
        let socket = listener.expect("bind").into();
        let netns = crate::raw::sock::netns_cookie(std::os::fd::AsFd::as_fd(&socket)).expect("cookie");
        let view = View { namespaces: namespaces.clone(), pod: None };
        let accounts = crate::quota::Accounts::new(&broker.budgets);
        let namespace = view.of_socket(netns, &socket, &accounts.descriptors).expect("our own");
        for offer in 0..offers {
            let ip = [10, 0, (offer >> 24) as u8, (offer >> 16) as u8];
            let local = SocketAddr::from((ip, offer as u16)).into();
            let remote = SocketAddr::from(([10, 1, 0, 1], 80)).into();
            let facts = SocketFacts {
                cookie: offer,
                space: AddressSpace { netns, device: 0, pod: None },
                local,
                remote,
                original: None,
            };
            let ticket = Ticket { member: 1, offer };
            assert_eq!(
                broker.matcher.decide(Offer { ticket, facts, who: Who::user(1000), passive: false }, &[]),
                Verdict::Waits
            );
            let permit = accounts.offers.claim(1).expect("a domain may have so many");
            broker.waits(ticket, Pending { namespace: namespace.clone(), declined: None, _permit: permit });
        }
    }

    /// A member that joins and leaves costs the main thread no work for the offers of others.
    #[test]
    fn a_member_that_goes_takes_no_look_at_what_others_offer() {
        let mut broker = broker();
        fill(&mut broker, 100_000);
        let began = Instant::now();
        (2..5_000).for_each(|member| broker.remove_offers(member));
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        assert_eq!((broker.waiting.len(), broker.matcher.len()), (100_000, 100_000));
        broker.remove_offers(1);
        assert_eq!((broker.waiting.len(), broker.matcher.len()), (0, 0));
    }
}
